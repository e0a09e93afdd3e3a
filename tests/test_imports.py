"""Packages import in the order of the table in docs/architecture.md, without circles and without private parts."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "restless_bandits"
MODULES = {
    ".".join(("restless_bandits", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
FRONT = ("restless_bandits", "restless_bandits.__main__")
"""The front of the package, which loads names lazily, and the entry point of ``python -m``."""
MOST_TOP_ENTRIES = 16


def table():
    """The packages of the table in their order: ``plots.py`` is ``plots``, ``oracles/`` is ``oracles``."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = text.partition("| package |")[2].partition("\n\n")[0].splitlines()
    cells = [row.split("|")[1].strip(" `") for row in rows if row.startswith("| `")]
    return [cell.removesuffix(".py").rstrip("/") for cell in cells]


def package_of(module):
    return module.split(".")[1]


def is_type_check(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(tree, *, types):
    """The import statements of a module, wherever they stand; those for the type checker only with ``types``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif types or not is_type_check(node):
            yield from statements(node, types=types)


@cache
def imported(module, *, types=True):
    """Pairs (module of this package, imported name or None)."""
    return tuple(_imported(module, types))


def _imported(module, types):
    for node in statements(ast.parse(MODULES[module].read_text(encoding="utf-8")), types=types):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name in MODULES)
            continue
        assert node.level == 0, f"{module} has a relative import"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            if inner in MODULES:
                yield inner, None
            elif node.module in MODULES:
                yield node.module, alias.name


def imports_of(module, *, types=True):
    return {name for name, _ in imported(module, types=types)} - set(FRONT) - {module}


INNER = sorted(set(MODULES) - set(FRONT))


def test_every_package_is_in_the_table():
    assert sorted(table()) == sorted({package_of(name) for name in INNER})
    assert len(table()) <= MOST_TOP_ENTRIES


def test_the_folder_holds_nothing_else():
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    known = {f"{name}.py" if (PACKAGE / f"{name}.py").exists() else name for name in table()}
    assert entries == known | {"__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize("module", INNER)
def test_imports_go_up(module):
    packages = table()
    own = packages.index(package_of(module))
    below = sorted(name for name in imports_of(module) if packages.index(package_of(name)) > own)
    assert not below, f"{module} imports {below}, which stand below it in the table of docs/architecture.md"


@pytest.mark.parametrize("module", INNER)
def test_no_private_import(module):
    """A name with an underscore belongs to the package that holds it, ``_internal`` so to ``restless_bandits``."""
    for target, name in imported(module):
        parts = [*target.split("."), *([name] if name else [])]
        for depth, part in enumerate(parts):
            if part.startswith("_") and not part.startswith("__"):
                owner = ".".join(parts[:depth])
                assert module == owner or module.startswith(f"{owner}."), f"{module} imports {'.'.join(parts)}"


def test_only_the_command_line_imports_the_paper():
    users = {package_of(name) for name in INNER for used in imports_of(name) if package_of(used) == "paper"}
    assert users == {"paper", "cli"}


def test_nothing_runs_in_a_circle():
    graph = {name: imports_of(name, types=False) for name in INNER}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports run in a circle: {' → '.join(error.args[1])}")


def test_the_front_loads_little():
    def loaded(code):
        shown = subprocess.run(
            [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        )
        return set(shown.stdout.split())

    heavy = {"numba", "scipy", "matplotlib", "pandas", "numpy", "typer", "rich", "jinja2"}
    assert not loaded("import restless_bandits") & heavy
    agent = loaded("import restless_bandits as rb; rb.Agent")
    assert not {name for name in agent if name.startswith(("restless_bandits.paper", "restless_bandits.simulation"))}
    assert not agent & {"matplotlib", "pandas", "typer", "rich", "jinja2"}
