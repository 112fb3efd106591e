-- The layout of a Keyhold store on SQLite. Everything of Keyhold's is called keyhold_*; the rest of the file is the
-- application's. Times are milliseconds since 1970, UTC. Text is compared byte by byte. Lanes are 0 (primary) or 1 (backfill).

-- Who the store is, and the fence of the process that owns it. One row.
CREATE TABLE keyhold_store (
  one               INTEGER PRIMARY KEY CHECK (one = 1),
  store_id          TEXT    NOT NULL,
  start_generation  INTEGER NOT NULL, -- grows at every start; each write transaction compares it with its process' own
  registry_revision INTEGER NOT NULL
) STRICT;
INSERT INTO keyhold_store VALUES (1, lower(hex(randomblob(16))), 0, 0);

-- One row for each broker lane: its narrow number, by which the other tables know it, and its counter. A lane may exist
-- for a checkpoint alone. Rows are never deleted: a sequence drawn once is never drawn again.
CREATE TABLE keyhold_lanes (
  id       INTEGER PRIMARY KEY,
  category TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  lane     INTEGER NOT NULL,
  last     INTEGER NOT NULL, -- sequence drawn last
  UNIQUE (category, key, lane)
) STRICT;

-- Every event and command, once: as the record of its lane, and as the event of its stream where an entity emitted it.
-- position is the order of commits over all lanes; AUTOINCREMENT, so that a purge never lets one be used again.
CREATE TABLE keyhold_log (
  position       INTEGER PRIMARY KEY AUTOINCREMENT,
  lane           INTEGER NOT NULL, -- keyhold_lanes.id
  sequence       INTEGER NOT NULL,
  void           INTEGER NOT NULL DEFAULT 0, -- 1: abandoned (what it was stays here, for the stream and for people), or emptied by a purge (type is '')
  held           INTEGER NOT NULL DEFAULT 0, -- 1: emptied, and kept for no other reason than that something below it in its lane stays
  id             TEXT    NOT NULL,
  type           TEXT    NOT NULL,
  version        INTEGER NOT NULL,
  encoding       TEXT    NOT NULL,
  time           INTEGER NOT NULL,
  stream_kind    TEXT,             -- NULL, as the next two, when no entity emitted it
  stream_id      TEXT,
  stream_version INTEGER,
  tenant         TEXT,             -- NULL here and below is ""
  correlation    TEXT,
  causation      TEXT,
  trace_parent   TEXT,
  trace_state    TEXT,
  data           BLOB
) STRICT;
CREATE UNIQUE INDEX keyhold_log_lane ON keyhold_log (lane, sequence);
CREATE UNIQUE INDEX keyhold_log_stream ON keyhold_log (stream_kind, stream_id, stream_version) WHERE stream_version IS NOT NULL;
CREATE INDEX keyhold_log_loose ON keyhold_log (time) WHERE stream_version IS NULL AND held = 0; -- what a purge may delete or empty, oldest first

-- Records that can never be delivered, and why; each is a row of keyhold_log with void = 1.
CREATE TABLE keyhold_abandoned (
  lane     INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  reason   TEXT    NOT NULL,
  time     INTEGER NOT NULL,
  PRIMARY KEY (lane, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE keyhold_snapshots (
  stream_kind   TEXT    NOT NULL,
  stream_id     TEXT    NOT NULL,
  version       INTEGER NOT NULL, -- of the stream
  state_version INTEGER NOT NULL, -- of the Go type
  encoding      TEXT    NOT NULL,
  data          BLOB,
  PRIMARY KEY (stream_kind, stream_id)
) STRICT;

CREATE TABLE keyhold_replies (
  stream_kind TEXT    NOT NULL,
  stream_id   TEXT    NOT NULL,
  command_id  TEXT    NOT NULL,
  command     TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  version     INTEGER NOT NULL, -- of the type
  encoding    TEXT    NOT NULL,
  rejected    TEXT    NOT NULL,
  time        INTEGER NOT NULL,
  data        BLOB,
  PRIMARY KEY (stream_kind, stream_id, command_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyhold_replies_time ON keyhold_replies (time);

-- Generations of units that are leased one by one (with a broker). A process that owns the store needs none.
CREATE TABLE keyhold_units (
  name       TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- The last sequence that a subscriber applied of a lane, and the id of its event.
CREATE TABLE keyhold_checkpoints (
  name     TEXT    NOT NULL, -- handler, entity kind or process manager
  lane     INTEGER NOT NULL, -- keyhold_lanes.id
  sequence INTEGER NOT NULL,
  event_id TEXT    NOT NULL,
  PRIMARY KEY (name, lane)
) STRICT, WITHOUT ROWID;

-- Units whose next event cannot be applied. A halt at or below the unit's checkpoint of the lane is void.
CREATE TABLE keyhold_halts (
  name       TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  lane       INTEGER NOT NULL, -- keyhold_lanes.id
  sequence   INTEGER NOT NULL,
  event_id   TEXT    NOT NULL,
  event_type TEXT    NOT NULL,
  attempts   INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  error      TEXT    NOT NULL,
  since      INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- Dead letters: events that one handler set aside.
CREATE TABLE keyhold_dead (
  name       TEXT    NOT NULL,
  lane       INTEGER NOT NULL, -- keyhold_lanes.id
  sequence   INTEGER NOT NULL,
  key        TEXT    NOT NULL, -- of the unit
  event_id   TEXT    NOT NULL,
  event_type TEXT    NOT NULL,
  attempts   INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  error      TEXT    NOT NULL,
  time       INTEGER NOT NULL,
  PRIMARY KEY (name, lane, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyhold_dead_record ON keyhold_dead (lane, sequence); -- which records a purge keeps

-- What the application declared. Lists that nothing is searched by are JSON.
CREATE TABLE keyhold_categories (
  name      TEXT    PRIMARY KEY,
  key_field TEXT    NOT NULL,
  buckets   INTEGER NOT NULL,
  commands  INTEGER NOT NULL,
  store_id  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE keyhold_handlers (
  name       TEXT    PRIMARY KEY,
  kind       TEXT    NOT NULL,
  types      TEXT    NOT NULL, -- JSON array of wire names
  sequential INTEGER NOT NULL,
  since      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE keyhold_subscriptions (
  category TEXT    NOT NULL,
  handler  TEXT    NOT NULL,
  ordinal  INTEGER NOT NULL, -- place among the handler's categories
  PRIMARY KEY (category, handler)
) STRICT, WITHOUT ROWID;

CREATE TABLE keyhold_types (
  name       TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  encoding   TEXT    NOT NULL,
  category   TEXT    NOT NULL,
  fields     TEXT    NOT NULL, -- JSON array of {Name, Kind}
  descriptor BLOB,
  PRIMARY KEY (name, version)
) STRICT;
