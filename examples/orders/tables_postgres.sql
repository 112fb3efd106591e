-- The same tables as in tables_sqlite.sql, which says what they are for.

CREATE TABLE IF NOT EXISTS shipments (
  id        BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id  TEXT    NOT NULL,
  client_id TEXT    NOT NULL,
  cents     BIGINT  NOT NULL,
  recalled  INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS shipments_order ON shipments (order_id);

CREATE TABLE IF NOT EXISTS orders_per_client (
  client_id TEXT   PRIMARY KEY,
  orders    BIGINT NOT NULL,
  paid      BIGINT NOT NULL,
  cents     BIGINT NOT NULL
);
