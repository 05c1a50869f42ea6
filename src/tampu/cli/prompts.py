"""Questions to the user, asked only if standard input is a terminal."""

from __future__ import annotations

import sys

import typer

import tampu


def is_interactive() -> bool:
    """True if a person can answer: standard input is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str, effect: str) -> None:
    """Continue only if the user answers yes. In a script nobody can: then raise, and ``effect`` is the error text."""
    if not is_interactive():
        raise tampu.InvalidMessage(effect, field="yes", hint="confirm with --yes, or try --dry-run first")
    if not typer.confirm(question, err=True):
        raise typer.Abort
