# Needs nothing but Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
PY := .venv/bin/python
RESTLESS := .venv/bin/restless

.PHONY: run test lint format bench docs dist check-dist clean

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

clean:
	rm -rf .venv build dist out site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch .venv/installed $@
