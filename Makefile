# Two commands do it all on a machine with nothing but Python 3.11+: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROWS ?=
OUT ?= build/demo

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types tests again honest optimized compiled docs bench bench-smoke bench-many bench-scale bench-credit bench-floods interop interop-smoke lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: $(VENV)/ready ## everything that the other targets need, into .venv

$(VENV)/ready: pyproject.toml tools/setup.py requirements/lock.txt requirements/data.txt requirements/java.txt
	@$(PYTHON) tools/setup.py $(VENV)

demo: setup ## a year of flights through back-pressure into Parquet, with a crash halfway (ROWS=20000 for less)
	@$(BIN)/python -m afflux demo --out $(OUT) $(if $(ROWS),--rows $(ROWS))

test: lint types ## what must pass before a change lands
	@$(MAKE) --no-print-directory --jobs=2 tests again
	@echo "== all passed"

lint: setup ## style and format
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## strict types
	@echo "== mypy --strict"
	@$(BIN)/mypy

tests: setup ## every test but the honest ones; core and protocols covered to the last branch
	@echo "== pytest"
	@$(BIN)/python -m pytest --cov --cov-report=term-missing --ignore=tests/honest

# Beside the tests, on another core: what it prints comes in one piece, at its end.
again: setup
	@mkdir -p build; $(MAKE) --no-print-directory --jobs=1 honest optimized compiled > build/again.log 2>&1; \
	    passed=$$?; cat build/again.log; exit $$passed

honest: setup ## habits of honest clients of other makes, in raw bytes; most of it is processes
	@echo "== pytest, honest habits"
	@$(BIN)/python -m pytest -q tests/honest

optimized: setup ## the inner rings and the asyncio driver again, without asserts
	@echo "== pytest under python -O"
	@$(BIN)/python -O -m pytest -q -m "not slow and not spark" tests/core tests/protocols tests/aio

compiled: setup ## the same on a wheel that mypyc has compiled; skipped where there is no C compiler
	@echo "== pytest on the compiled build"
	@tools/compiled.sh $(BIN)/python

docs: setup ## the generated pages, and all pages as a site in build/site; nothing is fetched for it
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.conformance
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html, or: $(BIN)/python -m http.server -d build/site"

bench: $(VENV)/bench-ready ## the workloads, peers beside us, into benchmarks/results.json and docs (npm for the JavaScript one)
	@$(BIN)/python -m benchmarks

bench-smoke: $(VENV)/bench-ready ## the workloads, very short: do they still run, is all counted?
	@$(BIN)/python -m benchmarks --smoke

bench-many: setup ## 10,000 connections, 10,000 streams, several workers, into benchmarks/many.json and docs (three minutes)
	@$(BIN)/python -m benchmarks.many

bench-scale: setup ## large payloads, streams beside others, work that grows, into benchmarks/scale.json and docs (three minutes)
	@$(BIN)/python -m benchmarks.scale

bench-credit: setup ## the adaptive window beside fixed ones, into benchmarks/credit.json and docs (half an hour)
	@$(BIN)/python -m benchmarks.credit --out benchmarks/credit.json --page

bench-floods: setup ## what floods cost a server beside an honest client, into benchmarks/floods.json (two minutes)
	@$(BIN)/python -m benchmarks.floods

$(VENV)/bench-ready: $(VENV)/ready requirements/bench.txt
	@echo "setup: what only the measuring needs: grpcio, and altair for the picture"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps -r requirements/bench.txt && touch $@ \
	    || echo "setup: that failed; the report will say who can not run without it"

interop: setup ## with other implementations of RSocket, every case, into docs/interop.md (npm for the JavaScript ones, Maven for Java)
	@$(BIN)/python -m interop

interop-smoke: setup ## the same, a handful of cases of each
	@$(BIN)/python -m interop --smoke

lock: ## raise requirements/lock.txt to the newest versions allowed
	@PYTHON=$(PYTHON) tools/lock.sh

clean: ## take away all that was made here
	rm -rf $(VENV) build dist interop/node_modules interop/js?/node_modules benchmarks/peers/js/node_modules benchmarks/peers/jeri/classes .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
