"""Private names are used by the class that defines the name, and in tests with few exceptions."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "restless_bandits"
PATHS = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {
    "_repr_html_": "the method that notebooks call, documented by IPython",
    "_replace": "a method of named tuples, documented",
    "_fields": "an attribute of named tuples, documented",
    "_asdict": "a method of named tuples, documented",
    "_exit": "os._exit ends a worker without the handlers of its parent",
    "_getframe": "sys._getframe finds the main script in the stack",
    "_processes": "concurrent.futures has no public way to end a busy worker",
    "_executor_manager_thread": "concurrent.futures has no public way to wait for the end of its thread",
    "_result_queue": "concurrent.futures has no public way to close the pipe that its thread reads",
    "_writer": "the open end of that pipe, in multiprocessing.SimpleQueue",
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
        if isinstance(child, ast.Attribute) and is_private(child.attr) and not is_own(child.value):
            yield child, inside
        yield from accesses(child, (*inside, child.name) if isinstance(child, ast.ClassDef) else inside)


def test_no_access_to_a_private_attribute_of_another_class():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in PATHS
        for node, inside in accesses(ast.parse(path.read_text(encoding="utf-8")))
        if node.attr not in ALLOWED and not any(node.attr in names_of(name) for name in inside)
    ]
    assert not found


IN_TESTS = {
    (
        "tests/agent/test_forgetting.py",
        "told._forget",
    ): "forgets at any slot; changes and memory choose theirs",
    ("tests/service/processes.py", "multiprocessing.current_process()._config"): "lets a child have children",
    ("tests/test_gym.py", "env._world"): "states that a random walk reaches rarely",
}
"""The private names that tests use, each with the reason."""


def used_in_tests(path):
    """The private names of a test: imported, read as attributes, or replaced by ``setattr``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("restless_bandits"):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            if node.attr not in ALLOWED:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield f"{ast.unparse(node.args[0])}.{name.value}"


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def test_tests_use_few_private_names():
    paths = [*sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]
    found = {(path.relative_to(ROOT).as_posix(), name) for path in paths for name in used_in_tests(path)}
    assert found == set(IN_TESTS)
    assert len(IN_TESTS) <= 10
