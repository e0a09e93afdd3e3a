"""Private names are used by the class that defines the name, and in tests with few exceptions."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "restless_bandits"
PATHS = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {
    "_replace": "a method of named tuples, documented",
    "_fields": "an attribute of named tuples, documented",
    "_exit": "os._exit ends a worker without the handlers of its parent",
    "_getframe": "sys._getframe finds the main script in the stack",
    "_processes": "concurrent.futures has no public way to end a busy worker",
    "_executor_manager_thread": "concurrent.futures has no public way to wait for the end of its thread",
}
"""Private names of other packages, each with the reason for its use."""


@cache
def classes():
    """The names of base classes, and the private names defined in the body or by a method, for each class."""
    found = {}
    for path in PATHS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names, bases = found.setdefault(node.name, (set(), set()))
                names.update(definitions(node))
                bases.update(base.id for base in node.bases if isinstance(base, ast.Name))
    return found


def definitions(node):
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inner.name
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and is_own(inner.value):
            yield inner.attr


def is_own(value):
    """Whether an expression is ``self``, ``cls`` or ``super()``."""
    return ast.unparse(value) in ("self", "cls", "super()")


def names_of(name):
    """The names defined by a class of the package and its base classes."""
    names, bases = classes().get(name, ((), ()))
    return set(names).union(*(names_of(base) for base in bases))


def accesses(node, inside=()):
    """Pairs (access to a private attribute of an object, names of the enclosing classes)."""
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.Attribute)
            and child.attr.startswith("_")
            and not child.attr.endswith("__")
            and not is_own(child.value)
        ):
            yield child, inside
        yield from accesses(child, (*inside, child.name) if isinstance(child, ast.ClassDef) else inside)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_access_to_a_private_attribute_of_another_class(path):
    found = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node, inside in accesses(ast.parse(path.read_text(encoding="utf-8")))
        if node.attr not in ALLOWED and not any(node.attr in names_of(name) for name in inside)
    ]
    assert not found
