-- What was taken in from streams that other programs write, with ids of their own. Text is compared byte by byte.

CREATE TABLE keyhold_taken (
  category text   COLLATE "C" NOT NULL, -- of the partition into which entries go
  key      text   COLLATE "C" NOT NULL,
  source   text   COLLATE "C" NOT NULL, -- what stands before the key in the name of the stream
  revision bigint NOT NULL,             -- grows whenever something was taken in
  entry    text   COLLATE "C" NOT NULL, -- id of the last entry that was taken in
  added    bigint NOT NULL,             -- entries that the stream ever had up to there; 0: not known
  lost     bigint NOT NULL,             -- entries that were gone before they were taken in
  lost_at  bigint NOT NULL,             -- when some were last found to be; 0: never
  PRIMARY KEY (category, key, source)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX keyhold_taken_lost ON keyhold_taken (category) WHERE lost > 0;

-- Ids of events that were taken in, by which one that comes again is known.
CREATE TABLE keyhold_taken_ids (
  category text   COLLATE "C" NOT NULL,
  key      text   COLLATE "C" NOT NULL,
  id       text   COLLATE "C" NOT NULL,
  time     bigint NOT NULL, -- when it was taken in
  PRIMARY KEY (category, key, id)
);
CREATE INDEX keyhold_taken_ids_time ON keyhold_taken_ids (time);
