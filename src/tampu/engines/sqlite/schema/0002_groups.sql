-- Schema 2. Groups: several messages of one may go at once, and they can take turns.

-- As many as this: NULL or 0 is one at a time in publish order, kept through its retries; see `tampu.engines.groups`.
ALTER TABLE tampu_queue ADD COLUMN places INTEGER;

-- The messages of a group that have a place: they may be delivered now.
CREATE TABLE tampu_lane_2 (q INTEGER, lane TEXT, seq INTEGER, PRIMARY KEY (q, lane, seq)) WITHOUT ROWID;
INSERT INTO tampu_lane_2 SELECT q, lane, seq FROM tampu_lane;
DROP TABLE tampu_lane;
ALTER TABLE tampu_lane_2 RENAME TO tampu_lane;

-- Where groups stand in the round of a queue with the ordering `fair`: the highest rank that one of the group's messages
-- was given. Those who stand behind the first ready message are forgotten: they begin again with it.
CREATE TABLE tampu_fair (q INTEGER, lane TEXT, last INTEGER NOT NULL, PRIMARY KEY (q, lane)) WITHOUT ROWID;
CREATE INDEX tampu_fair_last ON tampu_fair (q, last);
