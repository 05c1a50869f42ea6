"""The url of a store as every process can use it, the lake that belongs to it, and how that is reached."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tampu.model.errors import InvalidConfig
from tampu.spark.options import has_password

_ELSEWHERE = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "hdfs", "viewfs", "lakefs")
"""What delta-rs reaches. Of anything else it only says that no table is there."""
_ENV = "env:"
_SECRET = re.compile(r"secret|token(?!_file)|password|sas|private|key(?!_?id|_enabled)", re.IGNORECASE)
"""Names of such options. A key is one, unless it is the name of a key (AWS_ACCESS_KEY_ID)."""


def absolute(url: str) -> str:
    """Executors may have another working folder."""
    if url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        path, mark, query = url.removeprefix("sqlite:///").partition("?")
        return f"sqlite:///{Path(path).absolute()}{mark}{query}"
    return url if ":" in url.split("/", 1)[0] else str(Path(url).absolute())


def default_lake(url: str) -> str:
    """TAMPU_LAKE, or beside the file: jobs.db has jobs.lake."""
    given = os.environ.get("TAMPU_LAKE")
    if given:
        return given
    path = url.partition("?")[0]
    path = path.removeprefix("sqlite:///") if path.startswith("sqlite:") else path
    if "://" in path or path.startswith("env:"):
        return "tampu.lake"
    return str(Path(path).with_suffix(".lake"))


def local_path(uri: str) -> Path | None:
    """The folder of a local uri; None for one that is elsewhere, where a lake can be."""
    scheme, mark, path = uri.partition("://")
    if not mark:
        return Path(uri)
    if scheme == "file":
        return Path(path)
    if scheme not in _ELSEWHERE:
        raise InvalidConfig(
            f"a lake cannot be in {scheme}://", field="lake", hint=f"a folder, or one of {', '.join(_ELSEWHERE)}"
        )
    return None


def storage_options(given: Mapping[str, str]) -> dict[str, str]:
    """Options of the lake's storage, if they may travel: they reach executors inside the plan, and a plan is shown."""
    for name, value in given.items():
        if (_SECRET.search(name) or has_password(value)) and not value.startswith(_ENV):
            raise InvalidConfig(
                f"the value of {name} would be in Spark's plans",
                field="option",
                hint=f"set {name} in the environment of driver and executors, or say {name}=env:VARIABLE",
            )
    return dict(given)


def resolved(options: Mapping[str, str]) -> dict[str, str]:
    """With the values of those that name a variable, from the environment of the process that asks."""
    found = {}
    for name, value in options.items():
        variable = value.removeprefix(_ENV)
        if value.startswith(_ENV) and variable not in os.environ:
            raise InvalidConfig(
                f"the environment has no {variable}", field="option", hint="set it on driver and executors"
            )
        found[name] = os.environ[variable] if value.startswith(_ENV) else value
    return found
