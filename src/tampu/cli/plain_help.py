"""How parameters look in the help: a word for the value, no types in angle brackets, no brackets in brackets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperArgument

_WORDS = {bool: "", int: "N", float: "N", str: "TEXT", Path: "PATH"}


def escape(text: str) -> str:
    """Text in which rich finds no markup, such as ``tampu[lake]``."""
    return text.replace("[", "\\[")


def simplify(parameter: Any) -> None:
    """Change how the help shows a parameter. Doing it twice changes nothing more."""
    if isinstance(parameter, TyperArgument):
        _simplify_argument(parameter)
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    else:
        if parameter.metavar is None:
            parameter.metavar = _word(parameter)
        if parameter.metavar == "N" and None not in (parameter.min, parameter.max):
            parameter.metavar = f"{parameter.min}-{parameter.max}"
        parameter.min = parameter.max = None  # of the help only; what is given is checked by the annotation


def _simplify_argument(parameter: Any) -> None:
    name = parameter.metavar or parameter.name.upper()
    parameter.metavar = name
    shown = name if parameter.required else f"[{name}]"
    parameter.get_usage_pieces = lambda _context: [shown]
    parameter.display_type_rich = lambda **_: None


def _word(parameter: Any) -> str:
    described = parameter.type_descriptor
    if described.is_choice:
        return str(parameter.name).upper()
    annotation = described.annotation
    if described.is_list:
        (annotation,) = annotation.__args__
    return _WORDS.get(annotation, str(parameter.name).upper())
