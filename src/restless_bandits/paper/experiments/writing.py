"""Numbers as people write them, and the fragments of ``report.html``, filled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import resources
from string import Template

from restless_bandits._internal.validation import Array


def slots(horizon: float) -> str:
    """Write a number of slots as people do: 53 000, 1.2e7."""
    if horizon < 1e6:
        digits = max(0, math.floor(math.log10(max(horizon, 1))) - 1)
        return f"{round(horizon, -digits):,.0f}".replace(",", " ")
    return f"{horizon:.2g}".replace("e+0", "e").replace("e+", "e")


def amount(value: float) -> str:
    """Write a regret: whole where it is large."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def error_of(value: float) -> str:
    """Write a standard error: two digits, or whole where it is large."""
    return f"{value:.2g}" if value < 100 else amount(value)


def plus_minus(values: Array) -> str:
    return f"{amount(float(values.mean()))} ± {error_of(float(values.std(ddof=1)) / math.sqrt(len(values)))}"


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def fill(fragment: str, **values: object) -> Html:
    """Return a fragment of ``report.html`` with its names replaced; what is not ``Html`` is escaped."""
    safe = {name: value if isinstance(value, Html) else escape(str(value)) for name, value in values.items()}
    return Html(_fragments()[fragment].substitute(safe))


def fill_each(fragment: str, texts: Iterable[object]) -> Html:
    return join(fill(fragment, text=text) for text in texts)


def join(parts: Iterable[str]) -> Html:
    return Html("".join(parts))


def table(heads: Iterable[object], rows: Iterable[Iterable[object]], about: str) -> Html:
    """Return a table that scrolls where it is wider than its card; ``about`` names it for screen readers."""
    body = join(fill("row", cells=fill_each("cell", cells)) for cells in rows)
    return fill("table", heads=fill_each("head", heads), rows=body, about=about)


def captioned(caption: str, about: str, heads: Iterable[object], rows: Iterable[Iterable[object]]) -> Html:
    return fill("captioned", text=caption, table=table(heads, rows, about))


@cache
def _fragments() -> dict[str, Template]:
    text = resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    _, *parts = re.split(r"<!-- fragment: (\w+) -->\n", text)
    return {name: Template(body.rstrip("\n")) for name, body in zip(parts[::2], parts[1::2], strict=True)}
