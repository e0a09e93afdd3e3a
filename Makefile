# Needs nothing but Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
PY := .venv/bin/python
RESTLESS := .venv/bin/restless

.PHONY: run test lint format bench clean

run: .venv/installed
	$(RESTLESS) reproduce --quick --out out

test: .venv/installed-dev
	$(PY) -m pytest -n 2 --dist loadgroup

lint: .venv/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: .venv/installed-dev
	$(PY) -m benchmarks.oracles
	$(PY) -m benchmarks.learners
	$(RESTLESS) bench

clean:
	rm -rf .venv build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch .venv/installed $@
