# Everything happens in .venv, which is made as needed and again when pyproject.toml changes.
#
#   make run     a real Envoy before a sample service, limited by the sidecar; prints what to try.
#                Variables for it may stand in .env, see .env.example
#   make test    every test; test-unit needs no server, test-integration runs those that do
#   make bench   what a decision costs, beside other ways to do it; docs/performance.md has the rest
#   make soak    ten minutes of a steady rate with edits, reloads and ever new callers: does anything grow?
#   make fuzz    five minutes of inputs for everything that reads bytes from outside
#   make audit   known vulnerabilities of what is installed; needs the network, so it is no part of check
#   make check   formatting, lint, types, and that inner layers never import outer ones

PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-unit test-integration bench soak fuzz audit check clean

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

soak: .venv/.test
	$(BIN)/python -m tests.bench.soak

fuzz: .venv/.test
	$(BIN)/python -m tests.fuzz --seconds 300

# A database that cannot be reached is no finding, and no pass either.
audit: .venv/.audit
	@$(BIN)/pip-audit --local --skip-editable --progress-spinner off > .venv/audit.out 2> .venv/audit.err; found=$$?; \
	cat .venv/audit.out; \
	if grep -q 'ConnectionError\|ServiceError\|Timeout' .venv/audit.err; then \
	    echo 'audit: the database of vulnerabilities cannot be reached; nothing was checked' >&2; exit 2; \
	fi; \
	if grep -q 'could not be audited' .venv/audit.out; then \
	    echo 'audit: the database does not know all of what is installed (a mirror?); see above' >&2; exit 2; \
	fi; \
	cat .venv/audit.err >&2; exit $$found

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
