"""What the command asks people: only where there is somebody to answer."""

from __future__ import annotations

import sys

import typer

import tampu


def somebody() -> bool:
    """Is there a person at the other end?"""
    return sys.stdin.isatty()


def confirm(question: str, otherwise: str) -> None:
    """Go on only if the answer is yes. In a script there is nobody to ask: ``otherwise`` says what would be done."""
    if not somebody():
        raise tampu.InvalidMessage(otherwise, field="yes", hint="add --yes, or see first with --dry-run")
    if not typer.confirm(question, err=True):
        raise typer.Abort
