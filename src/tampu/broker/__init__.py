"""What users may do with a store: publish, claim, settle, administrate, schedule, transfer.

Verbs check their arguments, resolve settings, and yield calls of `tampu.engines.port`. `core` carries them out with the
engine, and `commit_queue/` lets concurrent calls share a commit. `store` and `async_store` are the public classes;
`access` is what other packages of tampu use beyond those. `admin/` has the verbs on whole queues, `streams/` the
streams of workers.

Not here: SQL and scripts (`engines/`), HTTP (`server/`, `client/`), background threads (`maintenance/`).
"""
