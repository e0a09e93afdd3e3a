"""MkDocs hook: translates formulas to MathML and keeps numbers together with their errors.

MathML needs no script and no network. pymdownx.arithmatex finds `$…$` and `$$…$$`. An untranslatable formula causes
a warning, and a warning fails `make docs`.
"""

from __future__ import annotations

import html
import logging
import re
import unicodedata
from collections.abc import Iterable
from functools import partial

from latex2mathml.converter import convert
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

log = logging.getLogger("mkdocs.hooks.pages")

IN_TEXT = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)
IN_CONTENTS = re.compile(r"(?P<tag>)\\\((?P<formula>.*?)\\\)")
BARS = re.compile(r"<mo>(&#x02016;|&#x0007C;|‖|\|)</mo>")
SCRIPT = re.compile(r'<mi mathvariant="script">([A-Z])</mi>')
LEFT_OVER = re.compile(r"<m[io]>(\\|&#x0005C;)\w+|<mi>(&|&#x00026;|&amp;)</mi>")


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Translate the formulas of a page and of the table of contents, and tie numbers to their errors."""
    translate = partial(_translate, where=page.file.src_uri)
    _translate_titles(page.toc, translate)
    return IN_TEXT.sub(translate, content).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _translate_titles(entries: Iterable[AnchorLink], translate: partial[str]) -> None:
    for entry in entries:
        entry.title = IN_CONTENTS.sub(translate, entry.title)
        _translate_titles(entry.children, translate)


def _translate(found: re.Match[str], where: str) -> str:
    block = found["tag"] == "div"
    formula = html.unescape(found["formula"]).strip()
    # latex2mathml does not know {aligned}, which looks like {align*}.
    known = formula.replace("{aligned}", "{align*}")
    try:
        shown = convert(known, display="block" if block else "inline")
    except Exception as error:  # latex2mathml raises its own exception classes
        log.warning("%s: cannot translate %s: %r", where, formula, error)
        return found[0]
    if LEFT_OVER.search(shown):
        log.warning("%s: latex2mathml does not know all of %s", where, formula)
    # Browsers ignore mathvariant="script": without the script character the operator 𝒯 would look like the horizon T.
    shown = SCRIPT.sub(lambda letter: f"<mi>{_script(letter[1])}</mi>", shown)
    # A norm's bars would grow to the height of the line.
    shown = BARS.sub(r'<mo stretchy="false">\1</mo>', shown)
    return f'<div class="formula">{shown}</div>' if block else shown


def _script(letter: str) -> str:
    """Return a capital letter in script; the older letters have Unicode names without MATHEMATICAL."""
    old = "BEFHILMR"
    return unicodedata.lookup(f"{'' if letter in old else 'MATHEMATICAL '}SCRIPT CAPITAL {letter}")
