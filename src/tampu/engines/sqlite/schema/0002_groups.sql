-- Schema 2. Several messages of a group may be delivered at once, and groups can take turns.

-- The slots of each group. NULL or 0: one message at a time, in publish order, also while it waits for a retry.
-- See `tampu.engines.groups`.
ALTER TABLE tampu_queue ADD COLUMN places INTEGER;

-- The messages that have a slot of their group: they may be delivered now.
CREATE TABLE tampu_lane_2 (q INTEGER, lane TEXT, seq INTEGER, PRIMARY KEY (q, lane, seq)) WITHOUT ROWID;
INSERT INTO tampu_lane_2 SELECT q, lane, seq FROM tampu_lane;
DROP TABLE tampu_lane;
ALTER TABLE tampu_lane_2 RENAME TO tampu_lane;

-- The last round of each group, in queues with the ordering `fair`: the highest rank given to one of its messages.
-- Groups behind the first ready message are deleted: they start again with its round. See `tampu.engines.fair_ranks`.
CREATE TABLE tampu_fair (q INTEGER, lane TEXT, last INTEGER NOT NULL, PRIMARY KEY (q, lane)) WITHOUT ROWID;
CREATE INDEX tampu_fair_last ON tampu_fair (q, last);
