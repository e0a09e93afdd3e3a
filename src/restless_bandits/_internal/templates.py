"""HTML and SVG from Jinja2 templates: files of the package, named by their paths below the package.

Jinja2 is imported at the first use. Values are escaped unless they are ``Markup``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("restless_bandits", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> Markup:
    """Return a template such as ``logs/report.html.j2``, rendered; a template with an undefined name is an error."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(values))


def code(label: object, text: object) -> Markup:
    """Return a label followed by a text in the type of code, for the cell of a table."""
    from markupsafe import Markup

    return Markup("{} <code>{}</code>").format(label, text)
