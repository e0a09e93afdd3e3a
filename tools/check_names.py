"""Check that replaced names do not come back, and that no two classes share a name.

``python tools/check_names.py`` prints each violation. A line of ``names.txt`` holds a name, its replacement, and the
files below ``src/restless_bandits`` that may still define the name. Modules, classes, functions, parameters, constants
and fields are checked, as whole identifiers; a name without a leading underscore stands for both forms.
"""

import ast
import fnmatch
import sys
from collections.abc import Iterator
from pathlib import Path

TOOLS = Path(__file__).parent
PACKAGE = TOOLS.parent / "src" / "restless_bandits"


def replaced_names() -> dict[str, tuple[str, list[str]]]:
    """Return the replacement of each name and the files that may define the name."""
    found = {}
    for line in (TOOLS / "names.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, replacement, *allowed = line.split()
            found[name] = replacement, allowed
    return found


def definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of classes, functions, parameters, constants and fields, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if isinstance(statement, ast.AnnAssign):
                    targets = [statement.target]
                yield from (
                    (name.id, name.lineno)
                    for target in targets
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name)
                )


def uses_of_replaced_names() -> Iterator[str]:
    """Yield a sentence for each definition of a replaced name."""
    names = replaced_names()
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        parts = [(part, 1) for part in relative.with_suffix("").parts]
        for name, line in parts + sorted(set(definitions(ast.parse(path.read_text(encoding="utf-8"))))):
            replacement, allowed = names.get(name) or names.get(name.lstrip("_"), ("", ["*"]))
            if not any(fnmatch.fnmatch(relative.as_posix(), pattern) for pattern in allowed):
                yield f"{relative.as_posix()}:{line}: {name} was replaced by {replacement}"


def classes_of_one_name() -> Iterator[str]:
    """Yield a sentence for each class whose name another class has."""
    homes: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                place = f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}"
                if node.name in homes:
                    yield f"{place}: {node.name} is also the class of {homes[node.name]}; one name has one meaning"
                homes[node.name] = place


if __name__ == "__main__":
    found = [*uses_of_replaced_names(), *classes_of_one_name()]
    print("\n".join(found))
    sys.exit(1 if found else 0)
