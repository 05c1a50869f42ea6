"""Table of the operations that take several statements on MariaDB: a SELECT that locks, then writes by primary key.

PostgreSQL moves rows between tables in one statement; MariaDB cannot. So the rows are read first, and the writes that
follow are sent with the rest of the commit, without waiting. Each function sends its first statement and returns a
function that does the rest. Its name is the statement name that `tampu.engines.sql` uses.
"""

from __future__ import annotations

from collections.abc import Callable

from tampu.engines.mariadb.ops import admin, claim, maintenance, publish
from tampu.engines.mariadb.ops.common import Rest

OPERATIONS: dict[str, Callable[..., Rest]] = {
    function.__name__: function
    for function in (
        publish.delete_keys_and_expiries,
        publish.import_keys_and_expiries,
        publish.import_messages,
        publish.insert_loaded,
        publish.insert_messages,
        publish.insert_ready,
        publish.publish_simple,
        publish.publish_without_lookup,
        publish.start_journal,
        claim.ack,
        claim.claim_ready,
        claim.delete_slots,
        claim.extend_leases,
        claim.next_in_group,
        claim.release_slots,
        claim.select_group_rates,
        claim.select_slots,
        claim.take_leases,
        admin.find_messages,
        admin.lock_waiting,
        admin.release_held,
        admin.remove_waiting,
        admin.request_cancel,
        admin.rerank,
        admin.revive_dead,
        admin.select_messages,
        admin.select_stats,
        admin.select_still_ended,
        maintenance.acquire_locks,
        maintenance.allocate_numbers,
        maintenance.begin_sweep,
        maintenance.delete_past_fair_turns,
        maintenance.delete_reaped_claims,
        maintenance.end_sweep,
        maintenance.fold_counts,
        maintenance.lock_due_delayed,
        maintenance.purge_dead,
        maintenance.remove_ended,
        maintenance.set_run_at,
        maintenance.trim_group_rates,
        maintenance.trim_idempotency_keys,
        maintenance.trim_results,
        maintenance.try_acquire_locks,
        maintenance.write_commit,
    )
}
