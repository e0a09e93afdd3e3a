"""A module imports only what stands above it in the table of docs/architecture.md, and no package runs in a circle."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "restless_bandits"
MODULES = {
    ".".join(("restless_bandits", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
OUTSIDE = ("restless_bandits", "restless_bandits.__main__")
"""The package's front, which loads everything by name and when asked, and the command's other name."""


def order():
    """The rooms, from the table: ``markov.py`` is ``restless_bandits.markov`` and ``oracles/`` a package."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("| room |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [row.strip(" `").removesuffix(".py").rstrip("/") for row in rows]


def room_of(module):
    return module.split(".")[1]


def imports_of(module):
    """The modules of this package that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return {name for name in found if name in MODULES and name not in OUTSIDE}


def test_every_room_is_in_the_table():
    assert sorted(order()) == sorted({room_of(name) for name in MODULES if name not in OUTSIDE})


@pytest.mark.parametrize("module", sorted(set(MODULES) - set(OUTSIDE)))
def test_imports_go_up(module):
    rooms = order()
    own = rooms.index(room_of(module))
    below = sorted(name for name in imports_of(module) if rooms.index(room_of(name)) > own)
    assert not below, f"{module} imports {below}, which stand below it in the table of docs/architecture.md"


def test_no_package_runs_in_a_circle():
    graph = {name: imports_of(name) - {name} for name in MODULES if name not in OUTSIDE}
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

    heavy = {"numba", "scipy", "matplotlib", "pandas", "numpy", "typer", "rich"}
    assert not loaded("import restless_bandits") & heavy
    agent = loaded("import restless_bandits as rb; rb.Agent")
    assert not {name for name in agent if name.startswith(("restless_bandits.theory", "restless_bandits.simulation"))}
    assert not agent & {"matplotlib", "pandas", "typer", "rich"}
