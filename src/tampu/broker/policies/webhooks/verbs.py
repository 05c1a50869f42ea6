"""The verbs of webhooks: set the secret that signs deliveries. It is never shown."""

from __future__ import annotations

import msgspec

from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.policies.webhooks.deliveries import SECRET
from tampu.engines.port import DeleteDocument, Document, PutDocument
from tampu.model.errors import InvalidConfig

_LEAST, _MOST = 16, 256


class WebhookVerbs(Recording):
    def put_webhook_secret(self, secret: str | None) -> Steps[bool]:
        """Sign deliveries of this tenant with a secret of 16 to 256 characters; None: do not sign. True if they are."""
        kind, name = SECRET
        if secret is None:
            yield from self.recorded([DeleteDocument(kind, self.tenant, name)], "webhook.secret", "removed")
            return False
        if not isinstance(secret, str) or not _LEAST <= len(secret) <= _MOST or not secret.isascii():
            raise InvalidConfig(
                f"the secret must have {_LEAST} to {_MOST} ASCII characters", field="secret",
                hint="make one with: openssl rand -hex 32",
            )  # fmt: skip
        call = PutDocument(kind, self.tenant, name, msgspec.json.encode(secret))
        yield from self.recorded([call], "webhook.secret", "set")
        return True

    def has_webhook_secret(self) -> Steps[bool]:
        """True if deliveries of this tenant are signed."""
        kind, name = SECRET
        found: Document | None = yield Read(lambda engine: engine.document(kind, self.tenant, name))
        return found is not None
