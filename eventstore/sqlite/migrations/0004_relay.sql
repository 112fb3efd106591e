-- What a relay needs to know: which lanes have records that the broker has not, which are to be looked at, and which tell another history than the broker.

-- 1: the last start was for a relay, and every lane that grew since is in keyhold_unpublished.
ALTER TABLE keyhold_store ADD COLUMN relayed INTEGER NOT NULL DEFAULT 0;

-- The memory of the broker by which units were leased first; '': by none yet.
ALTER TABLE keyhold_store ADD COLUMN first_broker TEXT NOT NULL DEFAULT '';

ALTER TABLE keyhold_lanes ADD COLUMN published INTEGER NOT NULL DEFAULT 0; -- the broker has everything up to this sequence

-- The store that keeps a handler's checkpoints; '': this one.
ALTER TABLE keyhold_handlers ADD COLUMN store_id TEXT NOT NULL DEFAULT '';
-- JSON object: from when on it begins in categories that another application produces.
ALTER TABLE keyhold_handlers ADD COLUMN begins TEXT NOT NULL DEFAULT 'null';
ALTER TABLE keyhold_subscriptions ADD COLUMN own INTEGER NOT NULL DEFAULT 1; -- 0: of a handler whose checkpoints another store keeps

-- Lanes whose last sequence is above what is noted as published.
CREATE TABLE keyhold_unpublished (
  part INTEGER NOT NULL, -- 0 to 63: the slice of all lanes that the lane is in
  lane INTEGER NOT NULL, -- keyhold_lanes.id
  PRIMARY KEY (part, lane)
) STRICT, WITHOUT ROWID;

-- Lanes that are to be looked at: somebody may not have passed what was published, or they can go from the broker.
CREATE TABLE keyhold_looks (
  lane   INTEGER PRIMARY KEY, -- keyhold_lanes.id
  part   INTEGER NOT NULL,
  due    INTEGER NOT NULL,
  gap    INTEGER NOT NULL, -- milliseconds since the look before
  retire INTEGER NOT NULL  -- 1: everything was passed
) STRICT;
CREATE INDEX keyhold_looks_due ON keyhold_looks (part, due);

-- Lanes of which the broker has something that the store has not. Nothing of them is published until a person decides.
CREATE TABLE keyhold_diverged (
  lane            INTEGER PRIMARY KEY, -- keyhold_lanes.id
  sequence        INTEGER NOT NULL,    -- the newest entry of the broker, and its event
  event_id        TEXT    NOT NULL,
  stored_event_id TEXT    NOT NULL,    -- what the store had there; '': nothing
  since           INTEGER NOT NULL
) STRICT;
