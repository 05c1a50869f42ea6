-- Out: kind, tenant, name, version, value of every document
SELECT kind, tenant, name, version, value FROM tampu.document ORDER BY kind, tenant, name
