-- Whose store it is, and what the process that has it open tells of itself.

ALTER TABLE keyhold_store ADD COLUMN application TEXT NOT NULL DEFAULT ''; -- name of the application; '': none has started since this is kept

ALTER TABLE keyhold_store ADD COLUMN trouble TEXT NOT NULL DEFAULT ''; -- what keeps the process from its work, as it says
ALTER TABLE keyhold_store ADD COLUMN since INTEGER NOT NULL DEFAULT 0; -- of that
