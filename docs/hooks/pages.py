"""What is done to every page when the site is built.

Formulas become MathML, so that a page needs no script and no network to show them: `$…$` and `$$…$$` are found by
pymdownx.arithmatex, and what cannot be translated is a warning and so fails `make docs`. And a number stays on one line
with its error.
"""

from __future__ import annotations

import html
import logging
import re

from latex2mathml.converter import convert
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.pages")

FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
BARS = re.compile(r"<mo>(&#x02016;|&#x0007C;|‖|\|)</mo>")


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Translate the formulas of a page, and tie numbers to their errors."""

    def translate(found: re.Match[str]) -> str:
        block = found[1] == "div"
        formula = html.unescape(found[2]).strip()[2:-2].strip()
        # The one environment that people write and the translator does not know looks like one that it does.
        known = formula.replace("{aligned}", "{align*}")
        try:
            shown = convert(known, display="block" if block else "inline")
        except Exception as error:  # the translator raises classes of its own, one for every fault
            log.warning("%s: cannot translate %s: %r", page.file.src_uri, formula, error)
            return found[0]
        left = re.search(r"<m[io]>(\\|&#x0005C;)\w+", shown)
        if left or re.search(r"<mi>(&|&#x00026;|&amp;)</mi>", shown):
            log.warning("%s: a command in %s is unknown to latex2mathml", page.file.src_uri, formula)
        # A norm's bars would grow to the height of the line.
        shown = BARS.sub(r'<mo stretchy="false">\1</mo>', shown)
        return f'<div class="formula">{shown}</div>' if block else shown

    return FORMULA.sub(translate, content).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
