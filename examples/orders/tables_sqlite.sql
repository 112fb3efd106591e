-- The tables of the handlers: the application's own, in the same database as its events, so that a row and the fact that its
-- event is done commit together.

-- One row for each order shipped, in the order of shipping. That there is no second one is not enforced here: Keyhold promises
-- it, and the demo counts.
CREATE TABLE IF NOT EXISTS shipments (
  id        INTEGER PRIMARY KEY,
  order_id  TEXT    NOT NULL,
  client_id TEXT    NOT NULL,
  cents     INTEGER NOT NULL,           -- price of shipping
  recalled  INTEGER NOT NULL DEFAULT 0  -- 1: called back, the order was cancelled
);
CREATE INDEX IF NOT EXISTS shipments_order ON shipments (order_id);

CREATE TABLE IF NOT EXISTS orders_per_client (
  client_id TEXT    PRIMARY KEY,
  orders    INTEGER NOT NULL, -- placed and not cancelled
  paid      INTEGER NOT NULL,
  cents     INTEGER NOT NULL  -- of those in orders
);
