# Needs nothing but Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
OLDEST_PYTHON ?= python3.11
PY := .venv/bin/python
RESTLESS := .venv/bin/restless

.PHONY: run test test-slow soak lint format bench docs dist check-dist check-minimum clean

run: .venv/installed
	$(RESTLESS) reproduce --quick --out out

test: .venv/installed-dev
	$(PY) -m pytest -n 2 --dist loadgroup -m "not slow" $(ARGS)

# Tests that need minutes, a browser, PostgreSQL, a Dask cluster or dozens of kills.
test-slow: .venv/installed-dev
	$(PY) -m pytest -n 2 --dist loadgroup -m slow $(ARGS)

# The service under random kills, for as long as it takes: 200 of them, on SQLite and on PostgreSQL.
soak: .venv/installed-dev
	RESTLESS_KILLS=200 $(PY) -m pytest -s tests/service/test_kills.py tests/service/test_postgres.py

lint: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) tools/check_names.py
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	.venv/bin/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
	.venv/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	.venv/bin/hadolint docker/Dockerfile

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: .venv/installed-dev
	$(PY) -m benchmarks.oracles
	$(PY) -m benchmarks.learners
	$(PY) -m benchmarks.scale
	$(PY) -m benchmarks.agent
	$(PY) -m benchmarks.service
	$(RESTLESS) bench

# Any warning is an error; open site/index.html.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

dist: .venv/installed-dev
	rm -rf dist
	$(PY) -m build --quiet
	$(PY) -m twine check --strict dist/*

# What a user gets: the wheel in an empty environment, without this folder.
check-dist: dist
	rm -rf build/empty
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd / && $(CURDIR)/build/empty/bin/python -I $(CURDIR)/tests/installed.py
	rm -rf build/empty

# The oldest of everything that pyproject.toml allows, next to current versions of what those need in turn. Old libraries
# use what newer ones warn of: that is shown, and is no fault. Kernels compiled by the old Numba stay apart, as one Numba
# throws away what another has left in src.
check-minimum: .venv/installed-dev
	rm -rf build/minimum
	$(PY) -m uv venv --quiet --python $(OLDEST_PYTHON) build/minimum
	$(PY) -m uv pip install --quiet --python build/minimum --resolution lowest-direct --editable '.[dev]'
	build/minimum/bin/restless --help > build/minimum/help.txt
	NUMBA_CACHE_DIR=$(CURDIR)/build/minimum/kernels build/minimum/bin/restless solve paper-1
	NUMBA_CACHE_DIR=$(CURDIR)/build/minimum/kernels build/minimum/bin/python -m pytest -n 2 --dist loadgroup \
		-W default
	rm -rf build/minimum

clean:
	rm -rf .venv build dist out site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch .venv/installed $@
