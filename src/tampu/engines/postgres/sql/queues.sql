-- Out: tenant, name, number of every queue
SELECT tenant, name, q FROM tampu.queue ORDER BY tenant, name
