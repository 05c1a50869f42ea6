-- Schema 2. Groups can have several slots, and can take fair turns.

-- Slots of each group: NULL or 0 is one at a time in publish order, kept through retries; see `tampu.engines.groups`.
ALTER TABLE tampu_queue ADD COLUMN IF NOT EXISTS places int;

-- Messages that have a slot of their group: they may be delivered now.
ALTER TABLE tampu_lane DROP PRIMARY KEY, ADD PRIMARY KEY (q, lane, seq);

-- Turns of groups in queues with the ordering `fair`: the highest rank that a message of the group was given. Groups
-- behind the first ready message are deleted: they start again with its rank.
CREATE TABLE IF NOT EXISTS tampu_fair (
  q int, lane varbinary(1024), last bigint NOT NULL, PRIMARY KEY (q, lane), KEY of_queue (q, last)
) ENGINE = InnoDB;
