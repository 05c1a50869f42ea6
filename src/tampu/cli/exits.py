"""Exit codes of the command, and how errors are printed for people and scripts."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import msgspec

import tampu

OK = 0
FAILED = 1
BAD_INPUT = 2
NOTHING = 3
LEASE_LOST = 4
STORE = 5
INTERRUPTED = 130
BROKEN_PIPE = 141

EPILOG = (
    "Exit codes: 0 done · 1 failed, at least in part · 2 bad input · 3 nothing found · 4 lease lost · "
    "5 the store cannot be used · 130 interrupted · 141 the reader of the output is gone.\n\n"
    "With --json, standard output is one JSON document on one line (one per line with --follow and --watch), "
    'and an error is {"error": {"code", "message", "field", "hint"}} on standard error.'
)

_BY_KIND: tuple[tuple[type[tampu.TampuError], int], ...] = (
    (tampu.InvalidMessage, BAD_INPUT),
    (tampu.InvalidConfig, BAD_INPUT),
    (tampu.NotFound, NOTHING),
    (tampu.LeaseLost, LEASE_LOST),
    (tampu.StorageError, STORE),
)


def exit_code(error: tampu.TampuError) -> int:
    """The exit code of an error."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), FAILED)


def of_outcomes(outcomes: list[tampu.Outcome]) -> int:
    """0 if all succeeded; the common exit code if all failed alike; else 1."""
    codes = {OK if o.error is None else exit_code(o.error) for o in outcomes}
    return codes.pop() if len(codes) == 1 else FAILED if codes else OK


def describe(code: str, message: str, field: str | None = None, hint: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "field": field, "hint": hint}


def describe_error(error: tampu.TampuError) -> dict[str, Any]:
    return describe(error.code, error.message, error.field, error.hint)


def print_error(error: dict[str, Any], *, json: bool) -> None:
    """Print an error on standard error."""
    from tampu.cli.output import clean

    if json:
        whole = {k: v if v is None else v.encode("utf-8", "backslashreplace").decode() for k, v in error.items()}
        print_line(msgspec.json.encode({"error": whole}).decode())
        return
    print_line(f"error [{error['code']}]: {_one_line(clean(error['message']))}")
    if error["hint"]:
        print_line(f"hint: {_one_line(clean(error['hint']))}")


def print_line(line: str) -> None:
    """Print a line on standard error. If that fails, the exit code still says what happened."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())
