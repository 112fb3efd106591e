-- Whose store it is, and what the processes that have it open tell of themselves.

ALTER TABLE keyhold_store ADD COLUMN application text COLLATE "C" NOT NULL DEFAULT ''; -- name of the application; '': none has started since this is kept

ALTER TABLE keyhold_starts ADD COLUMN trouble text COLLATE "C" NOT NULL DEFAULT ''; -- what keeps the process from its share of the work, as it says
ALTER TABLE keyhold_starts ADD COLUMN since bigint NOT NULL DEFAULT 0; -- of that
