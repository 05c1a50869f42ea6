"""Operations that take several statements on MariaDB, by verb: a SELECT that locks, then writes by primary key.

PostgreSQL moves rows between tables in one statement; MariaDB cannot. So the rows are read first, and the writes that
follow are sent with the rest of the commit, without waiting. Every public function of these modules is an operation:
its name is the statement name that `tampu.engines.sql` uses. It sends its first statements, yields, and does the rest
when their rows are needed; one that needs no rows is a plain function. `common` has their helpers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tampu.engines.mariadb.ops import admin, claim, maintenance, publish, snapshot
from tampu.engines.mariadb.ops.common import Operation

OPERATIONS: dict[str, Callable[..., Operation | None]] = {
    name: function
    for module in (publish, claim, admin, maintenance, snapshot)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
