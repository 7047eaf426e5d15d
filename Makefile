# Everything happens in .venv, which is made as needed and again when pyproject.toml changes.
#
#   make run     a real Envoy before a sample service, limited by the sidecar; prints what to try.
#                Variables for it may stand in .env, see .env.example
#   make test    every test; test-unit needs no server, test-integration runs those that do
#   make bench   what a decision costs, beside other ways to do it; docs/performance.md has the rest
#   make check   formatting, lint, types, and that inner layers never import outer ones

PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-unit test-integration bench check clean

run: .venv/.demo
	$(BIN)/sidecar demo $(if $(wildcard .env),--env-file .env)

test: .venv/.test
	$(BIN)/pytest

test-unit: .venv/.test
	$(BIN)/pytest tests/unit

test-integration: .venv/.test
	$(BIN)/pytest tests/integration

bench: .venv/.bench
	$(BIN)/python -m tests.bench.compare --write

check: .venv/.check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find sidecar tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

# A venv that was made by half (Debian without python3-venv) is not taken for one.
.DELETE_ON_ERROR:
