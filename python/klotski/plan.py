"""What a run is planned to be, as a dict that notebooks show as tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


class Plan(dict[str, Any]):
    """How some work would run: ``klotski plan --json`` as a dict."""

    def _repr_html_(self) -> str:
        work, predicted = self["work"], self["predicted"]
        text = (
            f"{work['sequences']} sequences of {work['prompt_tokens']} + {work['generated_tokens']} tokens: "
            f"{predicted['tokens_per_second']:.2f} tokens/s, {predicted['seconds']:.1f} s; binding: {self['binding']}"
        )
        memory = [(line["kind"], _size(line["bytes"]), line["remark"]) for line in self["memory"]]
        reasons = [(one["what"], one["chosen"], one["why"]) for one in self["reasons"]]
        relief = [(one["change"], f"{one['tokens_per_second']:.2f}") for one in self["relief"]]
        return (
            f"<p>{html.escape(text)}</p>"
            + _table((f"memory of {_size(self['limit_bytes'])}", "size", ""), memory)
            + _table(("choice", "taken", "because"), reasons)
            + _table(("change", "tokens/s"), relief)
        )
