-- Schema 4. All tables with many inserts and deletes are vacuumed early and often, as some are since schema 1.

-- Rows that come and go, or change, with messages that have a group, a key or an expiry, or are held. What changes in
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

-- Rows that are kept for a while and removed by age, from the front of an index that each trim scans again.
ALTER TABLE tampu.dead SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.ending SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.failure SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.idempotency SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.journal SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tampu.result SET (autovacuum_vacuum_scale_factor = 0.05);
