-- Out: q, tenant, name of every queue
SELECT q, tenant, name FROM tampu_queue FORCE INDEX (PRIMARY) ORDER BY q
