-- What a process that has the store open is, for people.

ALTER TABLE keyhold_starts ADD COLUMN about text COLLATE "C" NOT NULL DEFAULT ''; -- as it says of itself, JSON of admin.About; nothing but people reads it
