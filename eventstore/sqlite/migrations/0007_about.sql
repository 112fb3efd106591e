-- What the process that has the store open is, for people.

ALTER TABLE keyhold_store ADD COLUMN about TEXT NOT NULL DEFAULT ''; -- as it says of itself, JSON of admin.About; nothing but people reads it
