-- Schema 6. A lease may end by holding its message.

-- The settle marker, as in the other indexes: a repeated settle gets the same answer.
ALTER TABLE tampu_held ADD COLUMN IF NOT EXISTS lease bigint;
