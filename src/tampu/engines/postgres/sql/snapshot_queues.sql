-- Out: q, tenant, name of every queue
SELECT q, tenant, name FROM tampu.queue ORDER BY q
