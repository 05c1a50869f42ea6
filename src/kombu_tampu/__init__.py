"""Makes ``broker_url = "tampu+…"`` known to kombu, which loads this module when it is imported.

It is a package of its own because it must be cheap: every program with kombu imports it. kombu has no entry point for
transports, only one for serializers, so this is that of a serializer: MessagePack by msgspec, named ``tampu-msgpack``.
"""

import msgspec
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("tampu", "tampu.integrations.celery.transport:Transport")

SERIALIZER = (msgspec.msgpack.encode, msgspec.msgpack.decode, "application/x-tampu-msgpack", "binary")
"""What kombu registers: encode, decode, content type, content encoding."""
