"""The colours of the console and of the lake's report, for light and dark. As text they can be read on ``--page``,
``--card`` and ``--tint``: at least 4.5 to 1."""

from __future__ import annotations

LIGHT = {
    "page": "#f6f7f9", "card": "#ffffff", "tint": "#e9edf4", "ink": "#1c2330", "soft": "#566072", "line": "#dfe3ea",
    "on": "#ffffff", "blue": "#2360c9", "green": "#13744c", "amber": "#8f5700", "red": "#c22f2f", "violet": "#6546cf",
    "grey": "#5b6474",
}  # fmt: skip
DARK = {
    "page": "#12151b", "card": "#1b2029", "tint": "#262d39", "ink": "#e8ebf0", "soft": "#9aa4b4", "line": "#2f3743",
    "on": "#10151f", "blue": "#6ea2ff", "green": "#4fcf9a", "amber": "#f0ac49", "red": "#ff7b7b", "violet": "#a992ff",
    "grey": "#9aa4b4",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


PALETTE = f":root{{{_variables(LIGHT)}}}\n@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}\n"
