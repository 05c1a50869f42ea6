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
        arriving.adopt,
        arriving.adopt_marks,
        arriving.drop_marks,
        arriving.enter_ready,
        arriving.journal_start,
        arriving.load_rows,
        arriving.publish_bare,
        arriving.publish_plain,
        arriving.store,
        leasing.ack,
        leasing.extend,
        leasing.heirs,
        leasing.known_lanes,
        leasing.known_paces,
        leasing.leave_lanes,
        leasing.take,
        leasing.unlease,
        leasing.unseat_lanes,
        steered.ask_cancel,
        steered.find,
        steered.free,
        steered.load,
        steered.lock_waiting,
        steered.rerank,
        steered.stats,
        steered.still_ended,
        steered.withdraw,
        timely.drop_claims,
        timely.fair_forget,
        timely.finish,
        timely.fold,
        timely.journal_trim,
        timely.locks,
        timely.numbers,
        timely.promote,
        timely.retime,
        timely.sweeping,
        timely.swept,
        timely.trim_paces,
        timely.trim_requests,
        timely.trim_results,
        timely.try_locks,
        timely.unbury,
        timely.unend,
    )
}
MOVES["raise"] = steered.revive
