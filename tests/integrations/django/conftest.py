"""A Django project with a database in a file, whose tasks are in that database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings

_BACKEND = "tampu.integrations.django.TampuBackend"


def tasks_in(folder: Path) -> dict[str, Any]:
    """The setting TASKS: one backend in the project's database, one with a store of its own."""
    return {
        "default": {"BACKEND": _BACKEND, "QUEUES": ["default", "mail"]},
        "retrying": {"BACKEND": _BACKEND, "OPTIONS": {"retry": True, "url": f"sqlite:///{folder}/other.db"}},
    }


if not settings.configured:
    settings.configure(
        SECRET_KEY="not a secret: a test",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "unused.db"}},
        INSTALLED_APPS=["django_tasks", "tampu.integrations.django"],
        TASKS=tasks_in(Path("unused")),
        USE_TZ=True,
    )
    django.setup()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """The folder of the project; its database and backends are new."""
    from django.db import connections
    from django.test.utils import override_settings

    from tampu.integrations.django.backend import close_all

    name = str(tmp_path / "db.sqlite3")
    tasks = tasks_in(tmp_path)
    connections["default"].close()
    connections.databases["default"]["NAME"] = name
    connections["default"].settings_dict["NAME"] = name
    with override_settings(TASKS=tasks):
        yield tmp_path
        close_all()
        connections["default"].close()
