"""Names of queues: kombu's may have characters that tampu's do not, such as the ``@`` of a worker's name."""

from __future__ import annotations

import hashlib
import re

_OTHERS = re.compile(r"[^A-Za-z0-9_.\-]")
_LONGEST = 128


def queue_name(name: str) -> str:
    """The queue of tampu for a queue of kombu: the same name, if it can be. Different names stay different."""
    made = _OTHERS.sub(lambda found: f":{ord(found[0]):x}:", name)
    if not made or made[0] in ".-:":
        made = f"_:{made}"
    if len(made) > _LONGEST:
        made = f"{made[:80]}:{hashlib.sha256(name.encode()).hexdigest()[:40]}"
    return made
