"""Silver: what the transitions of each message add up to. One function, one table; pure Spark SQL.

`histories` brings the events of each message together, by the one shuffle there is. Every other function is a selection
of its rows: ``m`` are the moves of a message in the order of the journal, ``m[i].new`` those that this run brought.
A publish begins a life: an id that is published again, after its message was removed, is another message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tampu.lake.tables import bronze
from tampu.lake.tables.schema import columns, table
from tampu.lake.tables.words import ENDS, FAILS, KNOWN, LIVE, MOVES, SETTLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENT = "partition, offset, at, queue, verb, state, attempt, type, worker, detail, fingerprint"
_OVER = """if(verb IN ('reap', 'cancel'), least(unix_micros(at),
    try_cast(nullif(regexp_extract(detail, '^lease_until=([0-9]+)$', 1), '') AS bigint)), unix_micros(at)) AS over"""
"""When the delivery was over that this event ended, if it did: a lease that ran out lasted no longer than it said."""


def histories(spark: SparkSession, new: DataFrame, old: DataFrame, bodies: DataFrame) -> DataFrame:
    """One row per message: its moves in order, its other events, the types it was given, the bodies of its ends.

    ``new`` and ``old`` are rows of bronze.events, those of this run and earlier ones of the same messages, each event
    in one of them; ``bodies`` are rows of bronze.messages. All come together before they are gathered: if each task
    gathered its own first, that would be one more sort. An adoption of a message that was known in that state (its
    store was moved) is no move.
    """
    return spark.sql(
        f"""
        WITH told AS (
          SELECT tenant, id, struct({_EVENT}, {_OVER}, verb IN ({MOVES}) AS move, true AS new) AS event, NULL AS body
          FROM {{new}} WHERE verb IN ({KNOWN})
          UNION ALL
          SELECT tenant, id, struct({_EVENT}, {_OVER}, verb IN ({MOVES}) AS move, false AS new), NULL
          FROM {{old}} WHERE verb IN ({KNOWN})
          UNION ALL
          SELECT tenant, id, NULL, struct(ended_partition AS partition, ended_offset AS offset, type, created_at,
            correlation_id, causation_id, parent_id, `group`, source,
            coalesce(payload_bytes, cast(octet_length(payload) AS bigint)) AS payload_bytes,
            coalesce(result_bytes, cast(octet_length(result) AS bigint)) AS result_bytes)
          FROM {{bodies}}
        ), history AS (
          SELECT tenant, id, sort_array(collect_list(event)) AS events, collect_list(body) AS bodies
          FROM (SELECT * FROM told DISTRIBUTE BY tenant, id) GROUP BY tenant, id
        ), moved AS (
          SELECT *, filter(events, e -> e.move) AS moves FROM history
        ), stood AS (
          SELECT *, filter(moves, (e, i) -> e.verb = 'adopt' AND i > 0 AND get(moves, i - 1).state <=> e.state) AS again
          FROM moved
        )
        SELECT tenant, id, m, concat(filter(events, e -> NOT e.move), again) AS others, bodies,
          transform(filter(events, e -> e.type IS NOT NULL), e -> struct(e.partition, e.offset, e.type)) AS types,
          coalesce(try_element_at(m, -1).state IN ({LIVE}), false) AS live
        FROM (SELECT *, if(size(again) = 0, moves, array_except(moves, again)) AS m FROM stood)
        """,
        new=new,
        old=old,
        bodies=bodies,
    )


def _type(event: str) -> str:
    """The type that a message had when this event came."""
    before = f"(t.partition, t.offset) <= ({event}.partition, {event}.offset)"
    return f"try_element_at(filter(types, t -> {before}), -1).type"


def _chosen(condition: str) -> str:
    """Of histories, a row for each move ``i`` for which a condition holds that looks at the move before it."""
    return f"""SELECT *, explode(filter(sequence(1, size(m) - 1), i -> m[i].new AND {condition})) AS i
        FROM {{histories}} WHERE size(m) > 1"""


@table(
    "silver.attempts",
    key=("id", "claimed_at"),
    columns=columns("""
        text: id queue type
        int: attempt
        time: ready_at claimed_at ended_at
        seconds: wait  -- claimed_at - ready_at; 0 where the clock went back, as in all of these
        seconds: run   -- ended_at - claimed_at; of a lease that ran out, to the end of the lease
        text: worker
        text: outcome  -- ack nack reject release reap cancel
        text: error fingerprint
    """),
    expect={"wait is not negative": "wait >= 0", "run is not negative": "run >= 0"},
    unique=False,  # a clock that stands still, or goes back, gives two claims of a message the same time
)
def attempts(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """Each delivery that has ended (ended_at)."""
    return spark.sql(
        f"""
        WITH ended AS ({_chosen(f"m[i].verb IN ({SETTLES}) AND m[i - 1].verb = 'claim'")}),
        delivery AS (
          SELECT tenant, id, m[i] AS e, m[i - 1] AS c, if(get(m, i - 2).state = 'ready', get(m, i - 2).at,
            NULL) AS ready_at,
            {_type("m[i]")} AS type, m[i].verb IN ('nack', 'reject') AS failed
          FROM ended
        )
        SELECT id, e.queue, type, c.attempt, ready_at, c.at AS claimed_at, e.at AS ended_at,
          if(ready_at IS NULL, NULL, greatest(unix_micros(c.at) - unix_micros(ready_at), 0)) / 1e6D AS wait,
          greatest(e.over - unix_micros(c.at), 0) / 1e6D AS run, c.worker, e.verb AS outcome,
          if(failed, e.detail, NULL) AS error, if(failed, e.fingerprint, NULL) AS fingerprint, to_date(e.at) AS day,
            tenant
        FROM delivery
        """,
        histories=histories,
    )


def _summed(condition: str, amount: str) -> str:
    """The sum over the moves ``i`` of a life for which a condition holds."""
    return (
        f"""if(size(l) < 2, 0L, aggregate(sequence(1, size(l) - 1), 0L, (a, i) -> a + if({condition}, {amount}, 0L)))"""
    )


@table(
    "silver.messages",
    key=("id",),
    columns=columns("""
        text: id queue type state
        time: created_at first_claimed_at ended_at
        int: attempts
        int: deliveries  -- claims, whether or not they counted
        int: replays
        seconds: wait   -- in ready, summed over its deliveries
        seconds: run    -- leased, summed
        seconds: total  -- from publish to end
        text: worker    -- of the last delivery
        text: error fingerprint  -- of the last failure
        text: correlation_id causation_id parent_id group source
        count: payload_bytes result_bytes
    """),
    expect={
        "a message has ended": f"state IN ({ENDS})",
        "times are not negative": "wait >= 0 AND run >= 0 AND total >= 0",
        "replays are not negative": "replays >= 0",
    },
    unique=False,  # an id may be published again when its message was removed: that is another message
)
def messages(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """One row per message that has ended, as it ended last (ended_at).

    Not those that were replayed since. A purge after the end takes nothing from the record. Of a message that had
    ended elsewhere when it came, nobody saw how it was delivered.
    """
    waited = _summed(
        "l[i].verb = 'claim' AND l[i - 1].state = 'ready'",
        "greatest(unix_micros(l[i].at) - unix_micros(l[i - 1].at), 0L)",
    )
    ran = _summed(
        f"l[i].verb IN ({SETTLES}) AND l[i - 1].verb = 'claim'", "greatest(l[i].over - unix_micros(l[i - 1].at), 0L)"
    )
    return spark.sql(
        f"""
        WITH begun AS (
          SELECT *, filter(sequence(0, size(m) - 1), i -> i = 0 OR m[i].verb = 'publish') AS b
          FROM {{histories}} WHERE exists(m, e -> e.new AND e.state IN ({ENDS}))
        ), life AS (
          SELECT tenant, id, types, bodies,
            explode(transform(b, (x, j) -> slice(m, x + 1, coalesce(get(b, j + 1), size(m)) - x))) AS l
          FROM begun
        ), over AS (
          SELECT *, if(element_at(l, -1).verb = 'purge', get(l, size(l) - 2), element_at(l, -1)) AS e FROM life
        ), ended AS (
          SELECT *, e.verb = 'adopt' AND l[0].offset = e.offset AS unseen, filter(l, x -> x.verb = 'claim') AS c,
            try_element_at(filter(l, x -> x.verb IN ({FAILS})), -1) AS f, {waited} AS waited, {ran} AS ran,
            try_element_at(filter(bodies, b -> b.partition = e.partition AND b.offset = e.offset), 1) AS body
          FROM over WHERE e.new AND e.state IN ({ENDS})
        ), born AS (
          SELECT *, if(l[0].verb = 'publish', l[0].at, body.created_at) AS created_at FROM ended
        )
        SELECT id, e.queue, coalesce({_type("e")}, body.type) AS type, e.state, created_at, get(c,
          0).at AS first_claimed_at,
          e.at AS ended_at, e.attempt AS attempts, if(unseen, NULL, size(c)) AS deliveries,
          size(filter(l, x -> x.verb = 'replay')) AS replays, if(unseen, NULL, waited / 1e6D) AS wait,
          if(unseen, NULL, ran / 1e6D) AS run,
          if(unseen OR created_at IS NULL, NULL, greatest(unix_micros(e.at) - unix_micros(created_at),
            0)) / 1e6D AS total, try_element_at(c, -1).worker AS worker,
          if(f.verb = 'reap', NULL, f.detail) AS error, if(f.verb = 'reap', NULL, f.fingerprint) AS fingerprint,
          body.correlation_id, body.causation_id, body.parent_id, body.`group`, body.source, body.payload_bytes,
          body.result_bytes, to_date(e.at) AS day, tenant
        FROM born
        """,
        histories=histories,
    )


def replaced(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """Rows of silver.messages that no longer hold: a replay took back an end that an earlier run reported."""
    return spark.sql(
        f"""
        WITH back AS ({_chosen("m[i].verb = 'replay' AND NOT m[i - 1].new")})
        SELECT id, m[i - 1].at AS ended_at, to_date(m[i - 1].at) AS day, tenant FROM back
        """,
        histories=histories,
    )


@table(
    "_state.carried",
    key=("partition", "offset"),
    columns=bronze.EVENTS.schema,
)
def carried(spark: SparkSession, histories: DataFrame) -> DataFrame:
    """All events of messages that have not ended; the next run needs them."""
    return spark.sql(
        f"""
        SELECT {_EVENT}, id, CAST(NULL AS string) AS run, to_date(at) AS day, tenant
        FROM (SELECT tenant, id, inline(concat(m, others)) FROM {{histories}} WHERE live)
        """,
        histories=histories,
    )
