"""What the RateLimit headers say, on answers that were let through and on those that were refused."""

from __future__ import annotations

import msgspec

from tampu.model.errors import RateLimited


class Quota(msgspec.Struct, frozen=True):
    """How much of a limit is left."""

    limit: int
    remaining: int
    reset: float
    """Seconds until there is room for the next message; 0 while there is."""

    def headers(self) -> dict[str, str]:
        return {
            "ratelimit-limit": str(self.limit),
            "ratelimit-remaining": str(self.remaining),
            "ratelimit-reset": str(int(self.reset + 0.999)),
        }


class OverLimit(RateLimited):
    """A limit of this server is used up; ``room`` says which and how much of it is left."""

    def __init__(
        self, message: str, quota: Quota, *, retry_after: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after, hint=hint)
        self.quota = quota
