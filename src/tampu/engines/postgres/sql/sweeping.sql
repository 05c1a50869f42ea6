-- Out: whether we sweep; only one does at a time, the others need not wait for it
SELECT pg_try_advisory_xact_lock(hashtextextended('tampu.sweep', 7461))
