"""What an installed package must do with nothing of this folder in sight: ``make check-dist`` runs it.

Not collected by pytest: it runs in an environment that has the wheel, what that needs, and nothing else.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import restless_bandits as rb

home = Path(sys.prefix)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


assert home in Path(rb.__file__).parents, rb.__file__
assert importlib.metadata.version("restless-bandits") == rb.__version__
assert importlib.util.find_spec("matplotlib") is None, "this environment is not empty"

restless = str(home / "bin" / "restless")
assert run(restless, "--version") == (0, f"restless-bandits {rb.__version__}\n", "")
assert run(sys.executable, "-I", "-m", "restless_bandits", "--help")[0] == 0
assert "0.4564640722" in run(restless, "solve", "paper-1")[1]
assert len(run(restless, "problems", "--json")[1]) > 1000
assert (Path(rb.__file__).parent / "py.typed").exists()

# Templates are in the package.
trace = rb.data.trace(range(20), ["a"] * 20, state=[0, 1, 1, 0] * 5)
assert "does the model fit?" in rb.data.report(rb.data.fit(trace, tests=False))

# What is optional says in one sentence what brings it.
assert importlib.util.find_spec("restless_bandits.plots") is not None
said = ""
try:
    rb.plots.style()
except rb.ProblemError as refusal:
    said = str(refusal)
assert said == "a picture needs matplotlib; pip install 'restless-bandits[plots]' brings it", said
code, out, error = run(restless, "reproduce", "figure-a", "--quick", "--runs", "2", "--out", str(home / "out"))
assert (code, out) == (2, ""), (code, out, error)
assert "restless-bandits[plots]" in error, error
code, out, error = run(restless, "serve", "--store", str(home / "agents.db"))
assert (code, out) == (2, ""), (code, out, error)
assert error == "Error: the service needs fastapi; pip install 'restless-bandits[service]' brings it\n", error
print(f"restless-bandits {rb.__version__} works from its wheel")
