-- Out: tenant, name, number of every queue
SELECT tenant, name, q FROM tampu_queue FORCE INDEX (tenant_name) ORDER BY tenant, name
