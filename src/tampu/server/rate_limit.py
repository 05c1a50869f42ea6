"""The RateLimit headers, on accepted and on refused requests."""

from __future__ import annotations

import msgspec

from tampu.model.errors import RateLimited


class Quota(msgspec.Struct, frozen=True):
    """A limit and what is left of it."""

    limit: int
    remaining: int
    reset: float
    """Seconds until the next message is accepted; 0 if it is accepted now."""

    def headers(self) -> dict[str, str]:
        return {
            "ratelimit-limit": str(self.limit),
            "ratelimit-remaining": str(self.remaining),
            "ratelimit-reset": str(int(self.reset + 0.999)),
        }


class OverLimit(RateLimited):
    """A rate limit of this server is used up."""

    def __init__(
        self, message: str, quota: Quota, *, retry_after: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after, hint=hint)
        self.quota = quota
