"""Correlation ids: messages that have one are found by it. Others cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.rules import correlation_word
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Values


def correlate(commit: Commit, found: Sequence[tuple[int, str, str]]) -> None:
    """Record (seq, tenant, correlation id) of messages that this commit stores or changes."""
    rows = [(correlation_word(tenant, correlation_id), seq) for seq, tenant, correlation_id in found]
    commit.db.send("insert_correlations", Values("bi", rows))
