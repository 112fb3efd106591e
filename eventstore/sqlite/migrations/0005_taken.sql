-- What was taken in from streams that other programs write, with ids of their own.

CREATE TABLE keyhold_taken (
  category TEXT    NOT NULL, -- of the partition into which entries go
  key      TEXT    NOT NULL,
  source   TEXT    NOT NULL, -- what stands before the key in the name of the stream
  revision INTEGER NOT NULL, -- grows whenever something was taken in
  entry    TEXT    NOT NULL, -- id of the last entry that was taken in
  added    INTEGER NOT NULL, -- entries that the stream ever had up to there; 0: not known
  lost     INTEGER NOT NULL, -- entries that were gone before they were taken in
  lost_at  INTEGER NOT NULL, -- when some were last found to be; 0: never
  PRIMARY KEY (category, key, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyhold_taken_lost ON keyhold_taken (category) WHERE lost > 0;

-- Ids of events that were taken in, by which one that comes again is known.
CREATE TABLE keyhold_taken_ids (
  category TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  time     INTEGER NOT NULL, -- when it was taken in
  PRIMARY KEY (category, key, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyhold_taken_ids_time ON keyhold_taken_ids (time);
