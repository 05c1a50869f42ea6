-- Built on the view of failing.py; the order is Spark's to find.
CREATE MATERIALIZED VIEW worst_queues AS
SELECT tenant, queue, count(*) AS failing_days, sum(dead) AS dead
FROM failing_days
GROUP BY tenant, queue;
