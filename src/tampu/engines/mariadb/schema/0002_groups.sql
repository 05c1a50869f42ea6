-- Schema 2. Groups: several messages of one may go at once, and they can take turns.

-- As many as this: NULL or 0 is one at a time in publish order, kept through its retries; see `tampu.engines.groups`.
ALTER TABLE tampu_queue ADD COLUMN IF NOT EXISTS places int;

-- The messages of a group that have a place: they may be delivered now.
ALTER TABLE tampu_lane DROP PRIMARY KEY, ADD PRIMARY KEY (q, lane, seq);

-- Where groups stand in the round of a queue with the ordering `fair`: the highest rank that one of the group's messages
-- was given. Those who stand behind the first ready message are forgotten: they begin again with it.
CREATE TABLE IF NOT EXISTS tampu_fair (
  q int, lane varbinary(1024), last bigint NOT NULL, PRIMARY KEY (q, lane), KEY of_queue (q, last)
) ENGINE = InnoDB;
