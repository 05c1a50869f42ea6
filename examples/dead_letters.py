"""Dead letters: inspect messages that keep failing, fix the cause, preview, and replay only those the fix is for."""

import tampu

with tampu.open("dead.db") as store:
    store.queues.put("import", max_attempts=2, backoff=0)
    store.publish_many("import", ["1", "2", "three", "4", ""])

    def run(*, words_allowed: bool) -> None:
        while leases := store.claim("import", limit=10, worker="importer"):
            for lease in leases:
                if not lease.payload:
                    store.reject(lease, reason="empty")
                elif lease.payload.isdigit() or words_allowed:
                    store.ack(lease)
                else:
                    try:
                        int(lease.payload)
                    except ValueError as error:
                        store.nack(lease, error)

    run(words_allowed=False)
    for dead in store.messages("import", state="dead"):
        whole = store.get(dead.id)
        print(f"{dead.payload!r}: {dead.reason} after {dead.attempts} attempts: {dead.last_error}")
        for failure in whole.failures:
            print(f"    attempt {failure.attempt} by {failure.worker}: {failure.outcome} {failure.error or ''}")

    # Preview first; then replay only those that the fix is for.
    fixed = {"reason": "retries_exhausted", "error": "invalid literal"}
    print(f"would replay {len(store.replay('import', where=fixed, dry_run=True))}")
    print(f"replayed {len(store.replay('import', where=fixed))}")
    run(words_allowed=True)
    print(f"removed {store.purge('import', state='dead')} for good")
    stats = store.stats("import")
    print(f"{stats.done} done, {stats.dead} dead")
