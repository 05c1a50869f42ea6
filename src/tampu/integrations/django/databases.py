"""Where messages are kept: in Django's own database, if no url is given, so that they share its transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

_SCHEMES = {"postgresql": "postgresql", "sqlite3": "sqlite", "mysql": "mariadb"}


def url_of(database: Mapping[str, Any]) -> str:
    """The url of tampu for an entry of Django's DATABASES."""
    engine = str(database["ENGINE"]).rpartition(".")[2]
    scheme = _SCHEMES.get(engine)
    if scheme is None:
        raise ImproperlyConfigured(
            f"tampu cannot keep messages in {engine}: set OPTIONS['url'] of the backend to a store, such as a file"
        )
    name = str(database["NAME"])
    if scheme == "sqlite":
        if not name or name == ":memory:" or "mode=memory" in name:
            raise ImproperlyConfigured("tampu needs a file: set OPTIONS['url'] of the backend, for tests to memory://")
        return f"sqlite:///{quote(name)}"
    user, password = str(database.get("USER") or ""), str(database.get("PASSWORD") or "")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host = str(database.get("HOST") or "localhost")
    port = f":{database['PORT']}" if database.get("PORT") else ""
    return f"{scheme}://{login}{'@' if login else ''}{quote(host, safe='')}{port}/{quote(name, safe='')}"
