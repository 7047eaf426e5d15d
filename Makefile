# Everything happens in .venv, which is made as needed and again when pyproject.toml changes.
#
#   make run     a real Envoy before a sample service, limited by the sidecar; prints what to try
#   make test    every test; test-unit needs no server, test-integration runs those that do
#   make check   formatting, lint, types, and that inner layers never import outer ones

PYTHON ?= python3
BIN := .venv/bin

# REDIS_URL, SIDECAR_ADMIN_KEY and others for `make run`, see .env.example.
-include .env
ifneq (,$(wildcard .env))
export $(shell sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' .env)
endif

.PHONY: run test test-unit test-integration check clean

run: .venv/.demo
	$(BIN)/sidecar demo

test: .venv/.test
	$(BIN)/pytest

test-unit: .venv/.test
	$(BIN)/pytest tests/unit

test-integration: .venv/.test
	$(BIN)/pytest tests/integration

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
