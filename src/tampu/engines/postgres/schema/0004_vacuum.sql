-- Schema 4. Every table that rows pass through is vacuumed early and often, as the first ones are since schema 1.

-- Rows come and go, or change, with the messages that have a group, a key, an expiry, or wait for somebody. What changes in
-- `fair` and `pace` is in an index, so room on their pages (fillfactor) would not keep an update there.
ALTER TABLE tampu.held SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tampu.lane SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tampu.expiry SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tampu.key SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tampu.fair SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tampu.pace SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0);

-- Rows are kept for a while and removed by age, from the front of an index that whoever trims walks again.
ALTER TABLE tampu.dead SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.ending SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.failure SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.idempotency SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.journal SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.result SET (autovacuum_vacuum_scale_factor = 0.05);
