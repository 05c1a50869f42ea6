"""Correlation ids: messages that have one are found by it. Others cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.rules import correlation_word
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints


def correlate(commit: Commit, found: Sequence[tuple[int, str, str]]) -> None:
    """Record (seq, tenant, correlation id) of messages that this commit stores or changes."""
    words = {story: correlation_word(*story) for story in {(tenant, name) for _, tenant, name in found}}
    stored = Blobs([words[tenant, name] for _, tenant, name in found])
    commit.db.send("insert_correlations", stored, Ints([seq for seq, _, _ in found]))
