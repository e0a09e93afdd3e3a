"""Griffe extension: shows doctests in docstrings as code. Markdown would render a bare ``>>>`` as a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>>.*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(Extension):
    """Fence every paragraph that begins with ``>>>``."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
