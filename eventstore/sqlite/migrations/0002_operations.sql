-- What operators need: events that were set aside and are applied under their own row, attempts, pauses, acts, jobs, and counts that
-- tell how far everybody is without a look at every lane.

-- 1: the process that had the store last stopped it, or nobody ever had it.
ALTER TABLE keyhold_store ADD COLUMN clean INTEGER NOT NULL DEFAULT 1;

-- The start generation in which the handler was saved last.
ALTER TABLE keyhold_handlers ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;

-- The job (keyhold_jobs.id) that handed a dead letter out, to be applied once more; 0: none did.
ALTER TABLE keyhold_dead ADD COLUMN due INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keyhold_dead ADD COLUMN suspicions INTEGER NOT NULL DEFAULT 0; -- times it was begun after an unclean end, since it is due
CREATE INDEX keyhold_dead_unit ON keyhold_dead (name, key);
CREATE INDEX keyhold_dead_due ON keyhold_dead (name, key) WHERE due > 0;

-- Events that a unit set aside, together with everything of their category that came after. They are applied in order of ordinal;
-- AUTOINCREMENT, so that one is never used again.
CREATE TABLE keyhold_parked (
  ordinal    INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  lane       INTEGER NOT NULL, -- keyhold_lanes.id
  sequence   INTEGER NOT NULL,
  event_id   TEXT    NOT NULL,
  event_type TEXT    NOT NULL,
  attempts   INTEGER NOT NULL,
  reason     TEXT    NOT NULL, -- '' for one that was parked because it came after another
  error      TEXT    NOT NULL,
  time       INTEGER NOT NULL,
  suspicions INTEGER NOT NULL DEFAULT 0, -- times it was begun after an unclean end, since it is due
  due        INTEGER NOT NULL DEFAULT 0 -- 1, of the first of a unit only: the unit is to apply its parked events now
) STRICT;
CREATE UNIQUE INDEX keyhold_parked_unit ON keyhold_parked (name, key, ordinal);
CREATE INDEX keyhold_parked_due ON keyhold_parked (name, key) WHERE due > 0;
CREATE INDEX keyhold_parked_record ON keyhold_parked (lane, sequence); -- which records a purge keeps

-- What is known of attempts at the next event of a unit. A row at or below the unit's checkpoint of the lane is void.
CREATE TABLE keyhold_tried (
  name       TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  lane       INTEGER NOT NULL, -- keyhold_lanes.id
  sequence   INTEGER NOT NULL,
  event_id   TEXT    NOT NULL,
  event_type TEXT    NOT NULL,
  attempts   INTEGER NOT NULL,
  error      TEXT    NOT NULL,
  time       INTEGER NOT NULL,
  again      INTEGER NOT NULL, -- when the next attempt is due
  suspicions INTEGER NOT NULL,
  alone      INTEGER NOT NULL,
  PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- Units that read no further; key '' is the whole handler.
CREATE TABLE keyhold_pauses (
  name   TEXT    NOT NULL,
  key    TEXT    NOT NULL,
  actor  TEXT    NOT NULL,
  reason TEXT    NOT NULL,
  since  INTEGER NOT NULL,
  PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- Who did what, and why. Rows are never changed.
CREATE TABLE keyhold_acts (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  kind     TEXT    NOT NULL,
  name     TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  lane     INTEGER NOT NULL, -- keyhold_lanes.id of the event concerned; 0 and the next two empty: none is
  sequence INTEGER NOT NULL,
  event_id TEXT    NOT NULL,
  job      INTEGER NOT NULL, -- keyhold_jobs.id; 0: none
  actor    TEXT    NOT NULL,
  reason   TEXT    NOT NULL,
  detail   TEXT    NOT NULL,
  time     INTEGER NOT NULL
) STRICT;
CREATE INDEX keyhold_acts_unit ON keyhold_acts (name, key);
CREATE INDEX keyhold_acts_name ON keyhold_acts (name);

-- Acts on many rows. A job takes rows in order of (key, category, lane, sequence), or units in order of (key, halt before parked
-- events), and at_* is what it took last.
CREATE TABLE keyhold_jobs (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  kind        TEXT    NOT NULL,
  handler     TEXT    NOT NULL, -- this and the next six are the filter
  key         TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  cause       TEXT    NOT NULL, -- why the row was set aside or the unit stopped
  event_id    TEXT    NOT NULL,
  since       INTEGER NOT NULL,
  until       INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  rate        INTEGER NOT NULL, -- rows per second
  total       INTEGER NOT NULL,
  handed      INTEGER NOT NULL DEFAULT 0,
  through     INTEGER NOT NULL DEFAULT 0,
  failed      INTEGER NOT NULL DEFAULT 0,
  actor       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  began       INTEGER NOT NULL,
  changed     INTEGER NOT NULL,
  at_key      TEXT    NOT NULL DEFAULT '',
  at_category TEXT    NOT NULL DEFAULT '',
  at_lane     INTEGER NOT NULL DEFAULT 0, -- 0 and 1 as in keyhold_lanes.lane
  at_sequence INTEGER NOT NULL DEFAULT 0  -- of a job on units: 1 after a halt, 2 after parked events
) STRICT;
CREATE INDEX keyhold_jobs_open ON keyhold_jobs (id) WHERE state IN ('running', 'paused');

-- Sums over lanes, changed in the transactions that change what they sum up: name '' is the category itself.
CREATE TABLE keyhold_counts (
  category TEXT    NOT NULL,
  name     TEXT    NOT NULL, -- handler, entity kind or process manager
  lanes    INTEGER NOT NULL, -- of the category: those that have, or had, a record
  total    INTEGER NOT NULL, -- of the category: sum of keyhold_lanes.last; of a name: sum of its checkpoints
  moved    INTEGER NOT NULL, -- when a checkpoint last moved; 0: not known
  PRIMARY KEY (category, name)
) STRICT, WITHOUT ROWID;
INSERT INTO keyhold_counts SELECT category, '', sum(last > 0), sum(last), 0 FROM keyhold_lanes GROUP BY category;
INSERT INTO keyhold_counts SELECT n.category, c.name, 0, sum(c.sequence), 0
  FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane GROUP BY n.category, c.name;
