"""Tables in HTML for notebooks: plain elements without styles or scripts, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 20
"""The rows of a table; a note counts the rest."""


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table with a title above and a note below; rows beyond the first ones are only counted."""
    coming = iter(rows)
    listed = list(islice(coming, MOST_ROWS))
    left = sum(1 for _ in coming)
    head = "".join(f"<th>{escape(word)}</th>" for word in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in listed)
    more = f"and {left:,} more" if left else ""
    notes = "".join(f"<p>{escape(text)}</p>" for text in (more, note) if text)
    return f"<p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def numbers_text(values: Iterable[float]) -> str:
    """Return numbers of four digits, separated by commas."""
    return ", ".join(f"{value:.4g}" for value in values)
