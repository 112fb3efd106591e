-- Read models: where each is in the order of all events (keyhold_log.position), and which of its builds readers see.

CREATE TABLE keyhold_projections (
  name         TEXT    PRIMARY KEY,
  version      INTEGER NOT NULL, -- of the code that declared it last
  categories   TEXT    NOT NULL, -- JSON array; [] is all but those of commands
  since        INTEGER NOT NULL,
  declared     INTEGER NOT NULL, -- 1: by the program that started last
  last         INTEGER NOT NULL, -- highest number that a build ever had
  pause_actor  TEXT,             -- NULL, as the next two: its builds go on
  pause_reason TEXT,
  pause_since  INTEGER
) STRICT, WITHOUT ROWID;

-- Tables of builds that are gone, which could not be dropped: tried again at each start.
CREATE TABLE keyhold_projection_left (
  name   TEXT    NOT NULL, -- of the projection, which may be gone, too
  number INTEGER NOT NULL, -- of the build
  tables TEXT    NOT NULL, -- JSON array of plain names
  error  TEXT    NOT NULL, -- why
  PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;

-- One row for each build. Its tables are called as readers call them with __ and its number behind; the plain names are views of
-- those of the current build. Times that are 0 are not known, or never were.
CREATE TABLE keyhold_projection_builds (
  name       TEXT    NOT NULL,
  number     INTEGER NOT NULL,
  version    INTEGER NOT NULL, -- of the code
  state      TEXT    NOT NULL, -- 'current', 'making', 'old'
  set_up     INTEGER NOT NULL,
  tables     TEXT    NOT NULL, -- JSON array of plain names
  position   INTEGER NOT NULL, -- of the last event applied or passed over; the next two are that event's
  event_id   TEXT    NOT NULL,
  event_time INTEGER NOT NULL,
  moved      INTEGER NOT NULL,
  applied    INTEGER NOT NULL,
  passed     INTEGER NOT NULL,
  skipped    INTEGER NOT NULL,
  began      INTEGER NOT NULL,
  switched   INTEGER NOT NULL,
  stopped    INTEGER NOT NULL, -- 1: attempts at the next event failed, 2: and it is halted there; 0: neither, and what follows is empty
  attempts   INTEGER NOT NULL,
  suspicions INTEGER NOT NULL, -- of what was tried: times it was begun after an unclean end
  reason     TEXT    NOT NULL,
  error      TEXT    NOT NULL,
  changed    INTEGER NOT NULL,
  again      INTEGER NOT NULL, -- when the next attempt is due
  at_id      TEXT    NOT NULL, -- of the event; '' is Setup, and where at_type is 'switch' taking the place of the build before
  at_type    TEXT    NOT NULL,
  at_category TEXT   NOT NULL,
  at_key     TEXT    NOT NULL,
  at_lane    INTEGER NOT NULL,
  at_sequence INTEGER NOT NULL,
  at_position INTEGER NOT NULL,
  at_time    INTEGER NOT NULL,
  PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;
