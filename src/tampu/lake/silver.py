"""Silver: what the transitions of each message add up to. Deliveries, ended messages, and stays in ready.

A run sees its new events together with all earlier ones of the messages they belong to: those that had not ended are
carried from run to run, those that are replayed are looked up. So every run tells each message's story from its
beginning and hands out only what the new events completed; cutting the journal elsewhere changes no row.

One shuffle by id brings a message's events together, and windows walk over them in order: nothing here grows with
anything but the number of events.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as F

from tampu.lake.shaping import ENDS, FAILS, LIVE, MOVES, SETTLES, STANDS, among, micros, seconds, shaped
from tampu.lake.tables import BY_NAME, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIED: pa.Schema = BY_NAME["bronze.events"].schema
STAYS = pa.schema(
    [
        ("id", pa.string()),
        ("ready_at", TIME),
        ("left_at", TIME),
        ("queue", pa.string()),
        ("day", pa.date32()),  # of left_at
        ("tenant", pa.string()),
    ]
)
"""Closed stays in ready; those still open follow from what is carried."""

_LINEAGE = ("correlation_id", "causation_id", "parent_id", "group", "source")


class Step(NamedTuple):
    """What one run adds to silver."""

    attempts: DataFrame
    messages: DataFrame
    replaced: DataFrame
    """tenant and id of messages whose row in silver.messages no longer holds: they were replayed."""
    stays: DataFrame
    carried: DataFrame
    kept: DataFrame
    """The walked events, kept until `close` so that each result is one scan."""

    def close(self) -> None:
        self.kept.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def returning(new: DataFrame) -> DataFrame:
    """tenant and id of messages whose earlier events are needed: they may have ended, and are replayed."""
    return new.where(F.col("verb") == "replay").select("tenant", "id").distinct()


def step(new: DataFrame, carried: DataFrame, earlier: DataFrame, messages: DataFrame) -> Step:
    """Results of this run; see `Step`. ``messages`` are the rows of bronze.messages of the ends in ``new``."""
    kept = _walked(new, carried, earlier).persist(StorageLevel.MEMORY_AND_DISK)
    fresh = kept.where("new AND moves")
    return Step(
        attempts=_attempts(fresh),
        messages=_messages(fresh, messages),
        replaced=fresh.where("verb = 'replay' AND NOT coalesce(was.new, true)").select("tenant", "id").distinct(),
        stays=shaped(
            fresh.where("was.state = 'ready'").select(
                "id", "queue", "tenant", "day", F.col("was.at").alias("ready_at"), F.col("at").alias("left_at")
            ),
            STAYS,
        ),
        carried=shaped(kept.where("live"), CARRIED),
        kept=kept,
    )


def _walked(new: DataFrame, carried: DataFrame, earlier: DataFrame) -> DataFrame:
    """Every event with what came before it in the life of its message."""
    columns = [F.col(f"`{name}`") for name in CARRIED.names]
    told = (
        new.select(*columns, F.lit(True).alias("new"))
        .unionByName(carried.select(*columns, F.lit(False).alias("new")))
        .unionByName(earlier.select(*columns, F.lit(False).alias("new")))
        .where(among(F.col("verb"), MOVES | STANDS))
        .withColumn("moves", among(F.col("verb"), MOVES))
    )
    by_id = Window.partitionBy("tenant", "id").orderBy("partition", "offset", F.col("new").desc())
    so_far = by_id.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = by_id.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last_state = F.last(F.when(F.col("moves"), F.coalesce("state", F.lit(""))), ignorenulls=True).over(whole)
    told = told.select(
        "*",
        F.coalesce(F.lag("offset").over(by_id) == F.col("offset"), F.lit(False)).alias("again"),
        # An id of the user's own may be published again when its first message was removed: that is another message.
        F.last(F.when(F.col("verb") == "publish", F.col("offset")), ignorenulls=True).over(so_far).alias("life"),
        F.last("type", ignorenulls=True).over(so_far).alias("kind"),
        among(last_state, LIVE).alias("live"),
    ).where("NOT again")
    # Verbs that leave the message where it is walk apart, so that "the one before" is always a move. The rows are
    # in this order already but for the rare id with two lives, and sorting what is sorted is one pass.
    moves = Window.partitionBy("tenant", "id", "life", "moves").orderBy("offset")
    told = told.select(
        "*",
        F.lag(F.struct("state", "at", "verb", "worker", "attempt", "new")).over(moves).alias("was"),
        F.lag(F.struct("state", "at"), 2).over(moves).alias("before"),
        F.lead("verb").over(moves).alias("next"),
    ).withColumns(
        {
            "wait_us": F.when(
                F.expr("verb = 'claim' AND was.state = 'ready'"), micros(F.col("at")) - micros(F.col("was.at"))
            ),
            "run_us": F.when(
                among(F.col("verb"), SETTLES) & (F.col("was.verb") == "claim"),
                micros(F.col("at")) - micros(F.col("was.at")),
            ),
        }
    )
    so_far = moves.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    claim = F.col("verb") == "claim"
    error = F.when(F.col("verb") != "reap", F.col("detail"))
    fingerprint = F.when(F.col("verb") != "reap", F.col("fingerprint"))
    return told.select(
        "*",
        F.max(F.when(F.col("verb") == "publish", F.col("at"))).over(so_far).alias("created_at"),
        F.min(F.when(claim, F.col("at"))).over(so_far).alias("first_claimed_at"),
        F.count(F.when(claim, True)).over(so_far).alias("deliveries"),
        F.count(F.when(F.col("verb") == "replay", True)).over(so_far).alias("replays"),
        F.coalesce(F.sum("wait_us").over(so_far), F.lit(0)).alias("waited_us"),
        F.coalesce(F.sum("run_us").over(so_far), F.lit(0)).alias("ran_us"),
        F.last(F.when(claim, F.struct("worker")), ignorenulls=True).over(so_far).alias("last_claim"),
        F.last(
            F.when(among(F.col("verb"), FAILS), F.struct(error.alias("error"), fingerprint.alias("fingerprint"))),
            ignorenulls=True,
        )
        .over(so_far)
        .alias("failure"),
    )


def _attempts(fresh: DataFrame) -> DataFrame:
    ended = fresh.where(F.col("run_us").isNotNull())
    failed = among(F.col("verb"), FAILS - {"reap"})
    ready_at = F.when(F.col("before.state") == "ready", F.col("before.at"))
    return shaped(
        ended.select(
            "id",
            "queue",
            F.col("kind").alias("type"),
            F.col("was.attempt").alias("attempt"),
            ready_at.alias("ready_at"),
            F.col("was.at").alias("claimed_at"),
            F.col("at").alias("ended_at"),
            seconds(micros(F.col("was.at")) - micros(ready_at)).alias("wait"),
            seconds(F.col("run_us")).alias("run"),
            F.col("was.worker").alias("worker"),
            F.col("verb").alias("outcome"),
            F.when(failed, F.col("detail")).alias("error"),
            F.when(failed, F.col("fingerprint")).alias("fingerprint"),
            "day",
            "tenant",
        ),
        "silver.attempts",
    )


def _messages(fresh: DataFrame, messages: DataFrame) -> DataFrame:
    """Messages that ended and were not replayed since. A purge after the end takes nothing from the record."""
    ended = fresh.where(among(F.col("state"), ENDS) & F.coalesce(F.col("next") == "purge", F.lit(True)))
    bodies = messages.select(
        "tenant",
        "id",
        F.col("ended_partition").alias("partition"),
        F.col("ended_offset").alias("offset"),
        F.col("type").alias("body_type"),
        F.col("created_at").alias("body_created_at"),
        F.octet_length("payload").alias("payload_bytes"),
        F.octet_length("result").alias("result_bytes"),
        *(F.col(f"`{name}`") for name in _LINEAGE),
    )
    created_at = F.coalesce("created_at", "body_created_at")
    return shaped(
        ended.drop("run", "wait", "type", "worker", "fingerprint")
        .join(bodies, ["tenant", "id", "partition", "offset"], "left")
        .withColumns(
            {
                "type": F.coalesce("kind", "body_type"),
                "created_at": created_at,
                "ended_at": F.col("at"),
                "attempts": F.col("attempt"),
                "wait": seconds(F.col("waited_us")),
                "run": seconds(F.col("ran_us")),
                "total": seconds(micros(F.col("at")) - micros(created_at)),
                "worker": F.col("last_claim.worker"),
                "error": F.col("failure.error"),
                "fingerprint": F.col("failure.fingerprint"),
            }
        ),
        "silver.messages",
    )
