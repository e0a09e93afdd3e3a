import fcntl
import gc
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

# Compiled kernels make a first example slow, so no example has a deadline; the suite's length is kept by the counts.
EXAMPLES = int(os.environ.get("RESTLESS_EXAMPLES", "20"))
settings.register_profile("suite", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# Tests start processes by the dozen. Where the environment keeps no bytecode, each would compile the package's source.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

collect_ignore = ["installed.py"]

TOGETHER = (
    "tests/paper/test_quick.py",
    "tests/paper/test_reproduction.py",
    "tests/paper/test_lemmas.py",
    "tests/oracles/test_others.py",
    "tests/simulation/test_dask.py",
    "tests/simulation/test_runner.py",
    "tests/service/test_browser.py",
    "tests/service/test_intruders.py",
    "tests/service/test_openapi.py",
    "tests/service/test_page.py",
    "tests/service/test_protocol.py",
    "tests/service/test_twin.py",
    "tests/test_docs.py",
)
"""Files whose tests share what is dear to make, and so go to one worker."""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from what stays until the end.

    Modules and tests are several million objects. The collector takes two fifths of the time of collecting the tests,
    and would look at all of these objects again and again while the tests run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out tests one by one, but those of the files above together.

    By file and not by the mark ``xdist_group``: its way through the names of tests is closed in newer versions of
    pytest, which then split the group without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return file if file in TOGETHER else nodeid

    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def compiled_in_turns(request, tmp_path_factory):
    """Workers that need the same kernel wait for the first of them, and take it from the cache, instead of all
    compiling it.
    """
    if not hasattr(request.config, "workerinput"):
        yield
        return
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    folder = tmp_path_factory.getbasetemp().parent / "kernels"
    folder.mkdir(exist_ok=True)
    compile_at_once = Dispatcher.compile
    held = set()

    def compile_in_turn(self, sig):
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        # Numba's own lock of threads first: two threads that take the two in different order would wait for ever.
        with global_compiler_lock:
            if name in held:
                return compile_at_once(self, sig)
            with (folder / name).open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held.add(name)
                try:
                    return compile_at_once(self, sig)
                finally:
                    held.remove(name)

    Dispatcher.compile = compile_in_turn
    yield
    Dispatcher.compile = compile_at_once


@pytest.fixture(autouse=True, scope="session")
def silently_compiled():
    """A command that a test runs in this process says nothing of compiling: whether there is any to do depends on the
    tests before it.
    """
    from restless_bandits._internal.compiling import compiling_long

    compiling_long.set()


@pytest.fixture(autouse=True, scope="session")
def interruptible():
    """Ctrl-C means Ctrl-C: a shell starts what it sends to the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def restless(capsys, monkeypatch):
    """Run the command in this process: exit code, stdout, stderr, as ``main`` leaves them."""
    from restless_bandits.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["restless", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return run
