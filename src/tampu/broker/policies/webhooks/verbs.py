"""The verbs of webhooks: set the secret that signs deliveries. It is never shown."""

from __future__ import annotations

from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.policies.webhooks import secrets
from tampu.engines.port import DeleteDocument, Document
from tampu.model.errors import InvalidConfig, VersionConflict
from tampu.model.times import Duration, duration

_LEAST, _MOST = 16, 256
_LONGEST_US = 30 * 86_400 * 1_000_000
_TRIES = 20


class WebhookVerbs(Recording):
    def put_webhook_secret(self, secret: str | None, *, previous_for: Duration = 0) -> Steps[bool]:
        """Sign deliveries of this tenant with a secret of 16 to 256 characters; None: do not sign. True if they are.

        With ``previous_for``, such as ``timedelta(days=1)``, the secret until now signs too for that time, so that
        receivers can change theirs meanwhile: the header then has a signature by each.
        """
        place = secrets.place(self.tenant)
        if secret is None:
            yield from self.recorded([DeleteDocument(*place)], "webhook.secret", "removed")
            return False
        if not isinstance(secret, str) or not _LEAST <= len(secret) <= _MOST or not secret.isascii():
            raise InvalidConfig(
                f"the secret must have {_LEAST} to {_MOST} ASCII characters", field="secret",
                hint="make one with: openssl rand -hex 32",
            )  # fmt: skip
        wait_us = duration(previous_for, "previous_for", error=InvalidConfig)
        if wait_us > _LONGEST_US:
            raise InvalidConfig("previous_for is at most 30 days", field="previous_for", hint="such as a day")
        for _ in range(_TRIES):
            found: Document | None = yield Read(lambda engine: engine.document(*place))
            now: int = yield Read(lambda engine: engine.now())
            call = secrets.change(self.tenant, found, secret, now + wait_us if wait_us else 0)
            try:
                yield from self.recorded([call], "webhook.secret", "set")
            except VersionConflict:
                continue
            return True
        raise VersionConflict("the secret keeps changing", hint="try again")

    def has_webhook_secret(self) -> Steps[bool]:
        """True if deliveries of this tenant are signed."""
        found: Document | None = yield Read(lambda engine: engine.document(*secrets.place(self.tenant)))
        return found is not None
