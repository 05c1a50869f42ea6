-- Out: how many dead rows lie in the tables whose heads are looked at with each claim; as old as the statistics, a second
SELECT (pg_stat_get_dead_tuples('tampu.ready'::regclass) + pg_stat_get_dead_tuples('tampu.claim'::regclass)
  + pg_stat_get_dead_tuples('tampu.delayed'::regclass) + pg_stat_get_dead_tuples('tampu.expiry'::regclass))::int8
