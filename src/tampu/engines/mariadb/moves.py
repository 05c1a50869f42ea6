"""Operations that are several statements here: a look that locks, then writes by primary key.

PostgreSQL moves rows between tables inside one statement; MariaDB does not. So the rows come to us, and what follows
from them is written: `together` with the rest of the commit, nobody waits for it. Each function sends its first
statement and answers with what is left to do; by name, it is what `tampu.engines.sql` asks for.
"""

from __future__ import annotations

from collections.abc import Callable

from tampu.engines.mariadb import arriving, leasing, steered, timely
from tampu.engines.mariadb.moving import Rest

MOVES: dict[str, Callable[..., Rest]] = {
    function.__name__: function
    for function in (
        arriving.delete_keys_and_expiries,
        arriving.import_keys_and_expiries,
        arriving.import_messages,
        arriving.insert_loaded,
        arriving.insert_messages,
        arriving.insert_ready,
        arriving.publish_simple,
        arriving.publish_without_lookup,
        arriving.start_journal,
        leasing.ack,
        leasing.claim_ready,
        leasing.delete_slots,
        leasing.extend_leases,
        leasing.next_in_group,
        leasing.release_slots,
        leasing.select_group_rates,
        leasing.select_slots,
        leasing.take_leases,
        steered.find_messages,
        steered.lock_waiting,
        steered.release_held,
        steered.remove_waiting,
        steered.request_cancel,
        steered.rerank,
        steered.revive_dead,
        steered.select_messages,
        steered.select_stats,
        steered.select_still_ended,
        timely.acquire_locks,
        timely.allocate_numbers,
        timely.begin_sweep,
        timely.delete_past_fair_turns,
        timely.delete_reaped_claims,
        timely.end_sweep,
        timely.fold_counts,
        timely.lock_due_delayed,
        timely.purge_dead,
        timely.remove_ended,
        timely.set_run_at,
        timely.trim_group_rates,
        timely.trim_idempotency_keys,
        timely.trim_journal,
        timely.trim_results,
        timely.try_acquire_locks,
        timely.write_commit,
    )
}
