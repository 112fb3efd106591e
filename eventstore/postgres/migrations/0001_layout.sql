-- The layout of a Keyhold store on PostgreSQL. Everything of Keyhold's is called keyhold_*; the rest of the schema is the
-- application's. Times are milliseconds since 1970, UTC. Text is compared byte by byte. Lanes are 0 (primary) or 1 (backfill).
-- Tables whose rows are changed in place leave room for that on their pages, and are vacuumed early.

-- Who the store is, and the fence of the processes that have it started. One row.
CREATE TABLE keyhold_store (
  one               boolean PRIMARY KEY DEFAULT true CHECK (one),
  store_id          text    COLLATE "C" NOT NULL,
  start_generation  bigint  NOT NULL, -- grows at every start
  owned_generation  bigint  NOT NULL, -- of the last start that did not share the store
  relayed           boolean NOT NULL, -- whether the start before the one at hand noted what is to be published
  registry_revision bigint  NOT NULL,
  first_broker      text    COLLATE "C" NOT NULL -- the memory of the broker by which units were leased first; '': by none yet
) WITH (fillfactor = 50);
INSERT INTO keyhold_store VALUES (true, replace(gen_random_uuid()::text, '-', ''), 0, 0, false, 0, '');

-- One row for each start. While its process lives, one of its connections holds the advisory lock (oid of this table, generation).
CREATE TABLE keyhold_starts (
  generation bigint  PRIMARY KEY,
  node       text    COLLATE "C" NOT NULL,
  pid        bigint  NOT NULL,
  host       text    COLLATE "C" NOT NULL,
  shared     boolean NOT NULL,
  began      bigint  NOT NULL,
  stopped    bigint  NOT NULL, -- 0: it has not stopped, or ended without
  told       boolean NOT NULL  -- a later start was told that it ended without a Stop
);

-- One row for each broker lane: its narrow number, by which the other tables know it, and its counter. A lane may exist
-- for a checkpoint alone. Rows are never deleted: a sequence drawn once is never drawn again.
CREATE TABLE keyhold_lanes (
  id       bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  category text     COLLATE "C" NOT NULL,
  key      text     COLLATE "C" NOT NULL,
  lane     smallint NOT NULL,
  last     bigint   NOT NULL DEFAULT 0, -- sequence drawn last
  part     smallint NOT NULL,           -- of (category, key), as event.PartOf gives it
  UNIQUE (category, key, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);

-- The order of commits over all lanes. It is drawn by the transaction that commits, once it has the locks of its lanes; before, it takes a
-- shared advisory lock that tells the value drawn last by anybody, so that a reader knows below what everything is there.
CREATE SEQUENCE keyhold_position;
SELECT setval('keyhold_position', 1); -- so that there always is a value drawn last

-- Every event and command, once: as the record of its lane, and as the event of its stream where an entity emitted it.
CREATE TABLE keyhold_log (
  position       bigint   PRIMARY KEY,
  lane           bigint   NOT NULL, -- keyhold_lanes.id
  sequence       bigint   NOT NULL,
  void           boolean  NOT NULL DEFAULT false, -- abandoned (what it was stays here, for the stream and for people), or emptied by a purge (type is '')
  held           boolean  NOT NULL DEFAULT false, -- emptied, and kept for no other reason than that something below it in its lane stays
  id             text     COLLATE "C" NOT NULL,
  type           text     COLLATE "C" NOT NULL,
  version        bigint   NOT NULL,
  encoding       text     COLLATE "C" NOT NULL,
  time           bigint   NOT NULL,
  stream_kind    text     COLLATE "C", -- NULL, as the next two, when no entity emitted it
  stream_id      text     COLLATE "C",
  stream_version bigint,
  tenant         text     COLLATE "C", -- NULL here and below is ""
  correlation    text     COLLATE "C",
  causation      text     COLLATE "C",
  trace_parent   text     COLLATE "C",
  trace_state    text     COLLATE "C",
  data           bytea
);
CREATE UNIQUE INDEX keyhold_log_lane ON keyhold_log (lane, sequence);
CREATE UNIQUE INDEX keyhold_log_stream ON keyhold_log (stream_kind, stream_id, stream_version) WHERE stream_version IS NOT NULL;
CREATE INDEX keyhold_log_loose ON keyhold_log (time) WHERE stream_version IS NULL AND NOT held; -- what a purge may delete or empty, oldest first

-- Records that can never be delivered, and why; each is a row of keyhold_log that is void.
CREATE TABLE keyhold_abandoned (
  lane     bigint NOT NULL,
  sequence bigint NOT NULL,
  reason   text   COLLATE "C" NOT NULL,
  time     bigint NOT NULL,
  PRIMARY KEY (lane, sequence)
);

CREATE TABLE keyhold_snapshots (
  stream_kind   text   COLLATE "C" NOT NULL,
  stream_id     text   COLLATE "C" NOT NULL,
  version       bigint NOT NULL, -- of the stream
  state_version bigint NOT NULL, -- of the Go type
  encoding      text   COLLATE "C" NOT NULL,
  data          bytea,
  PRIMARY KEY (stream_kind, stream_id)
) WITH (fillfactor = 80);

CREATE TABLE keyhold_replies (
  stream_kind text   COLLATE "C" NOT NULL,
  stream_id   text   COLLATE "C" NOT NULL,
  command_id  text   COLLATE "C" NOT NULL,
  command     text   COLLATE "C" NOT NULL,
  type        text   COLLATE "C" NOT NULL,
  version     bigint NOT NULL, -- of the type
  encoding    text   COLLATE "C" NOT NULL,
  rejected    text   COLLATE "C" NOT NULL,
  time        bigint NOT NULL,
  data        bytea,
  PRIMARY KEY (stream_kind, stream_id, command_id)
);
CREATE INDEX keyhold_replies_time ON keyhold_replies (time);

-- Generations of units that are leased one by one. A process that owns the store needs none.
CREATE TABLE keyhold_units (
  name       text   COLLATE "C" NOT NULL,
  key        text   COLLATE "C" NOT NULL,
  generation bigint NOT NULL,
  PRIMARY KEY (name, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);

-- The last sequence that a subscriber applied of a lane, and the id of its event.
CREATE TABLE keyhold_checkpoints (
  name     text   COLLATE "C" NOT NULL, -- handler, entity kind or process manager
  lane     bigint NOT NULL,             -- keyhold_lanes.id
  sequence bigint NOT NULL,
  event_id text   COLLATE "C" NOT NULL,
  PRIMARY KEY (name, lane)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX keyhold_checkpoints_lane ON keyhold_checkpoints (lane);

-- Units whose next event cannot be applied. A halt at or below the unit's checkpoint of the lane is void.
CREATE TABLE keyhold_halts (
  name       text   COLLATE "C" NOT NULL,
  key        text   COLLATE "C" NOT NULL,
  lane       bigint NOT NULL, -- keyhold_lanes.id
  sequence   bigint NOT NULL,
  event_id   text   COLLATE "C" NOT NULL,
  event_type text   COLLATE "C" NOT NULL,
  attempts   bigint NOT NULL,
  reason     text   COLLATE "C" NOT NULL,
  error      text   COLLATE "C" NOT NULL,
  since      bigint NOT NULL,
  generation bigint NOT NULL,
  PRIMARY KEY (name, key)
);

-- Dead letters: events that one handler set aside.
CREATE TABLE keyhold_dead (
  name       text   COLLATE "C" NOT NULL,
  lane       bigint NOT NULL, -- keyhold_lanes.id
  sequence   bigint NOT NULL,
  key        text   COLLATE "C" NOT NULL, -- of the unit
  event_id   text   COLLATE "C" NOT NULL,
  event_type text   COLLATE "C" NOT NULL,
  attempts   bigint NOT NULL,
  reason     text   COLLATE "C" NOT NULL,
  error      text   COLLATE "C" NOT NULL,
  time       bigint NOT NULL,
  due        bigint NOT NULL DEFAULT 0, -- the job (keyhold_jobs.id) that handed it out, to be applied once more; 0: none did
  suspicions bigint NOT NULL DEFAULT 0, -- times it was begun after an unclean end, since it is due
  PRIMARY KEY (name, lane, sequence)
);
CREATE INDEX keyhold_dead_record ON keyhold_dead (lane, sequence); -- which records a purge keeps
CREATE INDEX keyhold_dead_unit ON keyhold_dead (name, key);
CREATE INDEX keyhold_dead_due ON keyhold_dead (name, key) WHERE due > 0;

-- Events that a unit set aside, together with everything of their category that came after. They are applied in order of ordinal, which
-- is drawn while the unit is locked.
CREATE TABLE keyhold_parked (
  ordinal    bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text    COLLATE "C" NOT NULL,
  key        text    COLLATE "C" NOT NULL,
  lane       bigint  NOT NULL, -- keyhold_lanes.id
  sequence   bigint  NOT NULL,
  event_id   text    COLLATE "C" NOT NULL,
  event_type text    COLLATE "C" NOT NULL,
  attempts   bigint  NOT NULL,
  reason     text    COLLATE "C" NOT NULL, -- '' for one that was parked because it came after another
  error      text    COLLATE "C" NOT NULL,
  time       bigint  NOT NULL,
  suspicions bigint  NOT NULL DEFAULT 0, -- times it was begun after an unclean end, since it is due
  due        boolean NOT NULL DEFAULT false -- of the first of a unit only: the unit is to apply its parked events now
);
CREATE UNIQUE INDEX keyhold_parked_unit ON keyhold_parked (name, key, ordinal);
CREATE INDEX keyhold_parked_due ON keyhold_parked (name, key) WHERE due;
CREATE INDEX keyhold_parked_record ON keyhold_parked (lane, sequence); -- which records a purge keeps

-- What is known of attempts at the next event of a unit. A row at or below the unit's checkpoint of the lane is void.
CREATE TABLE keyhold_tried (
  name       text   COLLATE "C" NOT NULL,
  key        text   COLLATE "C" NOT NULL,
  lane       bigint NOT NULL, -- keyhold_lanes.id
  sequence   bigint NOT NULL,
  event_id   text   COLLATE "C" NOT NULL,
  event_type text   COLLATE "C" NOT NULL,
  attempts   bigint NOT NULL,
  error      text   COLLATE "C" NOT NULL,
  time       bigint NOT NULL,
  again      bigint NOT NULL, -- when the next attempt is due
  suspicions bigint NOT NULL,
  alone      bigint NOT NULL,
  PRIMARY KEY (name, key)
) WITH (fillfactor = 70);

-- Units that read no further; key '' is the whole handler.
CREATE TABLE keyhold_pauses (
  name   text   COLLATE "C" NOT NULL,
  key    text   COLLATE "C" NOT NULL,
  actor  text   COLLATE "C" NOT NULL,
  reason text   COLLATE "C" NOT NULL,
  since  bigint NOT NULL,
  PRIMARY KEY (name, key)
);

-- What the application declared. Lists that nothing is searched by are JSON.
CREATE TABLE keyhold_categories (
  name      text    COLLATE "C" PRIMARY KEY,
  key_field text    COLLATE "C" NOT NULL,
  buckets   bigint  NOT NULL,
  commands  boolean NOT NULL,
  store_id  text    COLLATE "C" NOT NULL
);

CREATE TABLE keyhold_handlers (
  name       text    COLLATE "C" PRIMARY KEY,
  kind       text    COLLATE "C" NOT NULL,
  types      text    NOT NULL, -- JSON array of wire names
  sequential boolean NOT NULL,
  since      bigint  NOT NULL,
  seen       bigint  NOT NULL, -- the start generation in which it was saved last
  store_id   text    COLLATE "C" NOT NULL DEFAULT '', -- of the store that keeps its checkpoints; '': this one
  begins     text    NOT NULL DEFAULT 'null' -- JSON object: from when on it begins in categories that another application produces
);

-- Which starts saved which handlers.
CREATE TABLE keyhold_seen (
  name       text   COLLATE "C" NOT NULL, -- of the handler
  generation bigint NOT NULL,             -- of the start
  PRIMARY KEY (name, generation)
);

CREATE TABLE keyhold_subscriptions (
  category text   COLLATE "C" NOT NULL,
  handler  text   COLLATE "C" NOT NULL,
  ordinal  bigint NOT NULL, -- place among the handler's categories
  PRIMARY KEY (category, handler)
);

CREATE TABLE keyhold_types (
  name       text   COLLATE "C" NOT NULL,
  version    bigint NOT NULL,
  encoding   text   COLLATE "C" NOT NULL,
  category   text   COLLATE "C" NOT NULL,
  fields     text   NOT NULL, -- JSON array of {Name, Kind}
  descriptor bytea,
  PRIMARY KEY (name, version)
);

-- Who did what, and why. Rows are never changed. An id is drawn while a lock is held, so that none appears below one that was seen.
CREATE TABLE keyhold_acts (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind     text   COLLATE "C" NOT NULL,
  name     text   COLLATE "C" NOT NULL,
  key      text   COLLATE "C" NOT NULL,
  lane     bigint NOT NULL, -- keyhold_lanes.id of the event concerned; 0 and the next two empty: none is
  sequence bigint NOT NULL,
  event_id text   COLLATE "C" NOT NULL,
  job      bigint NOT NULL, -- keyhold_jobs.id; 0: none
  actor    text   COLLATE "C" NOT NULL,
  reason   text   COLLATE "C" NOT NULL,
  detail   text   COLLATE "C" NOT NULL,
  time     bigint NOT NULL
);
CREATE INDEX keyhold_acts_unit ON keyhold_acts (name, key, id);
CREATE INDEX keyhold_acts_name ON keyhold_acts (name, id);

-- Acts on many rows. A job takes rows in order of (key, category, lane, sequence), or units in order of (key, halt before parked
-- events), and at_* is what it took last.
CREATE TABLE keyhold_jobs (
  id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind        text     COLLATE "C" NOT NULL,
  handler     text     COLLATE "C" NOT NULL, -- this and the next six are the filter
  key         text     COLLATE "C" NOT NULL,
  type        text     COLLATE "C" NOT NULL,
  cause       text     COLLATE "C" NOT NULL, -- why the row was set aside or the unit stopped
  event_id    text     COLLATE "C" NOT NULL,
  since       bigint   NOT NULL,
  until       bigint   NOT NULL,
  state       text     COLLATE "C" NOT NULL,
  rate        bigint   NOT NULL, -- rows per second
  total       bigint   NOT NULL,
  handed      bigint   NOT NULL DEFAULT 0,
  through     bigint   NOT NULL DEFAULT 0,
  failed      bigint   NOT NULL DEFAULT 0,
  actor       text     COLLATE "C" NOT NULL,
  reason      text     COLLATE "C" NOT NULL,
  began       bigint   NOT NULL,
  changed     bigint   NOT NULL,
  at_key      text     COLLATE "C" NOT NULL DEFAULT '',
  at_category text     COLLATE "C" NOT NULL DEFAULT '',
  at_lane     smallint NOT NULL DEFAULT 0, -- 0 and 1 as in keyhold_lanes.lane
  at_sequence bigint   NOT NULL DEFAULT 0  -- of a job on units: 1 after a halt, 2 after parked events
) WITH (fillfactor = 70);
CREATE INDEX keyhold_jobs_open ON keyhold_jobs (id) WHERE state IN ('running', 'paused');

-- Sums over lanes, changed in the transactions that change what they sum up: name '' is the category itself. A sum is spread over shards,
-- of which each connection has its own, so that nobody waits for it.
CREATE TABLE keyhold_counts (
  category text     COLLATE "C" NOT NULL,
  name     text     COLLATE "C" NOT NULL, -- handler, entity kind or process manager
  shard    smallint NOT NULL,             -- pg_backend_pid() & 255
  lanes    bigint   NOT NULL, -- of the category: those that have, or had, a record
  total    bigint   NOT NULL, -- of the category: sum of keyhold_lanes.last; of a name: sum of its checkpoints. Of one shard it may be negative
  moved    bigint   NOT NULL, -- when a checkpoint last moved; 0: not known
  PRIMARY KEY (category, name, shard)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX keyhold_counts_name ON keyhold_counts (name);

-- Read models: where each is in the order of all events (keyhold_log.position), and which of its builds readers see.
CREATE TABLE keyhold_projections (
  name         text    COLLATE "C" PRIMARY KEY,
  version      bigint  NOT NULL, -- of the code that declared it last
  categories   text    NOT NULL, -- JSON array; [] is all but those of commands
  since        bigint  NOT NULL,
  declared     boolean NOT NULL, -- by the program that started last
  last         bigint  NOT NULL, -- highest number that a build ever had
  pause_actor  text    COLLATE "C", -- NULL, as the next two: its builds go on
  pause_reason text    COLLATE "C",
  pause_since  bigint
);

-- Tables of builds that are gone, which could not be dropped: tried again at each start.
CREATE TABLE keyhold_projection_left (
  name   text   COLLATE "C" NOT NULL, -- of the projection, which may be gone, too
  number bigint NOT NULL,             -- of the build
  tables text   NOT NULL,             -- JSON array of plain names
  error  text   COLLATE "C" NOT NULL, -- why
  PRIMARY KEY (name, number)
);

-- One row for each build. Its tables are called as readers call them with __ and its number behind; the plain names are views of
-- those of the current build. Times that are 0 are not known, or never were.
CREATE TABLE keyhold_projection_builds (
  name        text     COLLATE "C" NOT NULL,
  number      bigint   NOT NULL,
  version     bigint   NOT NULL, -- of the code
  state       text     COLLATE "C" NOT NULL, -- 'current', 'making', 'old'
  set_up      boolean  NOT NULL,
  tables      text     NOT NULL, -- JSON array of plain names
  position    bigint   NOT NULL, -- of the last event applied or passed over; the next two are that event's
  event_id    text     COLLATE "C" NOT NULL,
  event_time  bigint   NOT NULL,
  moved       bigint   NOT NULL,
  applied     bigint   NOT NULL,
  passed      bigint   NOT NULL,
  skipped     bigint   NOT NULL,
  began       bigint   NOT NULL,
  switched    bigint   NOT NULL,
  stopped     smallint NOT NULL, -- 1: attempts at the next event failed, 2: and it is halted there; 0: neither, and what follows is empty
  attempts    bigint   NOT NULL,
  suspicions  bigint   NOT NULL, -- of what was tried: times it was begun after an unclean end
  reason      text     COLLATE "C" NOT NULL,
  error       text     COLLATE "C" NOT NULL,
  changed     bigint   NOT NULL,
  again       bigint   NOT NULL, -- when the next attempt is due
  at_id       text     COLLATE "C" NOT NULL, -- of the event; '' is Setup, and where at_type is 'switch' taking the place of the build before
  at_type     text     COLLATE "C" NOT NULL,
  at_category text     COLLATE "C" NOT NULL,
  at_key      text     COLLATE "C" NOT NULL,
  at_lane     smallint NOT NULL,
  at_sequence bigint   NOT NULL,
  at_position bigint   NOT NULL,
  at_time     bigint   NOT NULL,
  PRIMARY KEY (name, number)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);

-- What a relay has to publish: one row for each commit and lane, inserted by that commit alone and deleted once it is published, so that no
-- two commits meet in it. Kept while the store is started for a relay.
CREATE TABLE keyhold_unpublished (
  part smallint NOT NULL,
  lane bigint   NOT NULL, -- keyhold_lanes.id
  tail bigint   NOT NULL, -- the sequence drawn last by the commit
  PRIMARY KEY (part, lane, tail)
) WITH (autovacuum_vacuum_scale_factor = 0.01);

-- How far lanes are published. What is noted only grows.
CREATE TABLE keyhold_published (
  lane    bigint PRIMARY KEY, -- keyhold_lanes.id
  through bigint NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01);

-- Lanes that are to be looked at: have all subscribers passed what was published?
CREATE TABLE keyhold_looks (
  lane   bigint   PRIMARY KEY, -- keyhold_lanes.id
  part   smallint NOT NULL,
  due    bigint   NOT NULL,
  gap    bigint   NOT NULL, -- between the last look and this one, in nanoseconds
  retire boolean  NOT NULL  -- everything was passed: take the lane off the broker if that is still so
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX keyhold_looks_due ON keyhold_looks (part, due);

-- Lanes of which the broker tells another history.
CREATE TABLE keyhold_diverged (
  lane            bigint PRIMARY KEY, -- keyhold_lanes.id
  sequence        bigint NOT NULL,    -- the newest entry of the broker
  event_id        text   COLLATE "C" NOT NULL,
  stored_event_id text   COLLATE "C" NOT NULL, -- what the store has at that sequence; '': nothing
  since           bigint NOT NULL
);
