"""Grants: permissions on queues by name pattern. What no grant allows is forbidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tampu.model.decoders import convert
from tampu.model.errors import Forbidden, InvalidMessage
from tampu.model.grants import PERMISSIONS, Grant
from tampu.model.patterns import Pattern

ALL_TENANTS = "*"
"""The tenant of a key that may act in every tenant; no tenant has this name."""
_MAX_CACHED = 10_000

FULL = (Grant(("admin",)),)


def parse(text: str) -> Grant:
    """Read a grant such as ``publish,view``, ``publish,view:orders.*,invoices`` or ``review:loans/credit``."""
    permissions, _, rest = text.partition(":")
    queues, _, roles = rest.partition("/")
    named = {"permissions": permissions, "queues": queues, "roles": roles}
    value = {name: [one for one in texts.split(",") if one] for name, texts in named.items()}
    if not queues:
        del value["queues"]
    try:
        return convert(value, Grant)
    except msgspec.ValidationError as error:
        raise InvalidMessage(
            f"{text!r:.80} is not a grant: {error}",
            field="grant",
            hint=f"for example publish,view:orders.*; permissions are {', '.join(PERMISSIONS)}",
        ) from None


class Caller:
    """An authenticated caller in one tenant."""

    __slots__ = (
        "_known",
        "_patterns",
        "bucket",
        "burst",
        "dropped",
        "grants",
        "key_id",
        "name",
        "rate",
        "tenant",
        "valid_until",
    )

    def __init__(
        self,
        tenant: str,
        name: str,
        grants: Sequence[Grant],
        *,
        key_id: str | None = None,
        bucket: str | None = None,
        rate: float = 0,
        burst: int = 0,
        valid_until: float | None = None,
    ) -> None:
        self.tenant = tenant
        self.name = name
        self.grants = tuple(grants)
        self.key_id = key_id
        self.rate = rate
        self.burst = burst
        self.bucket = f"key.{key_id}" if bucket is None and key_id is not None else bucket
        """The name of the caller's own rate limit bucket; None if it has none."""
        self.valid_until = valid_until
        """When the key or token expires (monotonic clock); None if never."""
        self.dropped = False
        """Its key was changed, revoked or dropped from the cache: authenticate again before going on."""
        self._patterns: dict[str, list[Pattern]] = {}
        for grant in grants:
            for permission in PERMISSIONS if "admin" in grant.permissions else grant.permissions:
                self._patterns.setdefault(permission, []).extend(Pattern(text) for text in grant.queues)
        self._known: dict[tuple[str, str], bool] = {}

    def may(self, permission: str, queue: str) -> bool:
        known = self._known.get((permission, queue))
        if known is None:
            known = any(pattern.matches(queue) for pattern in self._patterns.get(permission, ()))
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            self._known[permission, queue] = known
        return known

    def roles_in(self, queue: str) -> frozenset[str] | None:
        """The roles whose reviews the caller may decide in this queue; None: all."""
        found: set[str] = set()
        for grant in self.grants:
            if any(Pattern(text).matches(queue) for text in grant.queues):
                if "admin" in grant.permissions or ("review" in grant.permissions and not grant.roles):
                    return None
                if "review" in grant.permissions:
                    found.update(grant.roles)
        return frozenset(found)

    def everywhere(self, permission: str) -> bool:
        """True if the permission covers every queue, existing or future."""
        return any(pattern.text == "*" for pattern in self._patterns.get(permission, ()))

    def somewhere(self, permission: str) -> bool:
        return bool(self._patterns.get(permission))

    def patterns(self, permission: str) -> list[str]:
        """Patterns of the queues that the permission covers."""
        return [pattern.text for pattern in self._patterns.get(permission, ())]

    def need(self, permission: str, *queues: str) -> None:
        for queue in queues:
            if not self.may(permission, queue):
                raise Forbidden(
                    f"this key may not {permission} in queue {queue!r:.150}",
                    field="queue",
                    hint=f"use a key with the permission {permission} for it",
                )

    def need_everywhere(self, permission: str) -> None:
        if not self.everywhere(permission):
            raise Forbidden(f"this needs the permission {permission} in all queues", hint="ask an admin of the tenant")

    def may_all(self, permission: str, pattern: str) -> bool:
        """True if the permission covers every queue, existing or future, that the pattern matches."""
        if "*" not in pattern:
            return self.may(permission, pattern)
        granted = [own.text for own in self._patterns.get(permission, ())]
        return any(text in ("*", pattern) or (text.endswith("*") and _within(pattern, text[:-1])) for text in granted)

    def need_pattern(self, permission: str, pattern: str) -> None:
        if not self.may_all(permission, pattern):
            raise Forbidden(
                f"this needs the permission {permission} in all queues that match {pattern!r:.150}",
                hint="ask an admin of the tenant",
            )

    def need_somewhere(self, *permissions: str) -> None:
        """Raise if the caller has none of these permissions."""
        if not any(map(self.somewhere, permissions)):
            raise Forbidden(f"this key has no permission {permissions[0]}", hint="ask an admin of the tenant")

    @property
    def permissions(self) -> list[str]:
        return [p for p in PERMISSIONS if p in self._patterns]


def _within(pattern: str, prefix: str) -> bool:
    """True if what the pattern matches begins with the prefix, which has no ``*``."""
    return "*" not in prefix and pattern.partition("*")[0].startswith(prefix)


def within(grants: Iterable[Grant], caller: Caller) -> None:
    """Refuse grants that the caller does not have itself."""
    for grant in grants:
        for permission in grant.permissions:
            for pattern in grant.queues:
                if not caller.everywhere(permission) and not ("*" not in pattern and caller.may(permission, pattern)):
                    raise Forbidden(
                        f"you cannot grant {permission} for {pattern}", hint="you do not have that permission yourself"
                    )
