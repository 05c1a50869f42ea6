-- Out: whether we sweep; only one does at a time, the others need not wait for it
-- Until `swept`, nobody is waited for: what is locked was asked for with SKIP LOCKED, this is for what was overlooked.
SELECT pg_try_advisory_xact_lock(hashtextextended('tampu.sweep', 7461)),
  set_config('tampu_usual.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', '200ms', true)
