# make demo and make test need nothing but Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROWS ?=
OUT ?= build/demo

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-live test tests lint types rounds long optimized compiled random docs bench bench-compiled bench-smoke bench-many bench-crowds bench-scale bench-credit bench-spark bench-captures bench-floods chaos spark-versions interop interop-smoke lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: $(VENV)/ready ## install everything that the other targets need into .venv

$(VENV)/ready: pyproject.toml tools/setup.py requirements/lock.txt requirements/data.txt requirements/java.txt
	@$(PYTHON) tools/setup.py $(VENV)

demo: setup ## stream a year of flights into Parquet, with a crash halfway (ROWS=20000 for fewer)
	@$(BIN)/python -m afflux demo --out $(OUT) $(if $(ROWS),--rows $(ROWS))

demo-live: setup ## a live stream through a relay into windows and a sink, with two crashes and a line of figures (ROWS=20000 for fewer)
	@$(BIN)/python -m afflux demo --live --out $(OUT)-live $(if $(ROWS),--rows $(ROWS))

test: setup ## style, strict types and all tests; what must pass before a change lands (about 15 minutes on two cores)
	@$(BIN)/python -m tools.test

tests: setup ## all tests, without style and types; PARTS="commands pages" runs some of them
	@$(BIN)/python -m tools.test $(or $(PARTS),tests)

lint: setup ## style, format, and pages that tools write: what finds mistakes in seconds
	@$(BIN)/python -m tools.test lint generated

types: setup ## strict types
	@$(BIN)/python -m tools.test types

rounds: setup ## all rounds: long, optimized, compiled with all its tests, random
	@$(BIN)/python -m tools.test long optimized compiled-all random

long: setup ## the long tests, of which make test runs a short version: kill points, floods, sizes, repetitions
	@$(BIN)/python -m tools.test long

optimized: setup ## tests of the protocols and the asyncio driver again, under python -O
	@$(BIN)/python -m tools.test optimized

compiled: setup ## the same on a wheel compiled by mypyc, of which make test runs a part; skipped without a C compiler
	@$(BIN)/python -m tools.test compiled

random: setup ## random examples and repetitions again, twenty times as many
	@$(BIN)/python -m tools.test random

docs: setup ## generate the reference pages and build the site in build/site, offline
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.conformance
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html, or: $(BIN)/python -m http.server -d build/site"

bench: $(VENV)/bench-ready ## measure afflux and its peers, into benchmarks/results.json and docs (the JavaScript peer needs npm)
	@tools/compiled.sh $(BIN)/python release
	@$(BIN)/python -m benchmarks

bench-compiled: setup ## build the compiled wheel as it is released, and measure what compiling saves (5 minutes)
	@tools/compiled.sh $(BIN)/python release
	@$(BIN)/python -m benchmarks.compiled

bench-smoke: $(VENV)/bench-ready ## run every benchmark for a moment, to check that it works
	@$(BIN)/python -m benchmarks --smoke
	@$(BIN)/python -m benchmarks.spark --smoke
	@$(BIN)/python -m benchmarks.capture --smoke

bench-many: setup ## measure 10,000 connections, 10,000 streams and several workers, into benchmarks/many.json and docs (3 minutes)
	@$(BIN)/python -m benchmarks.many

bench-crowds: setup ## measure 10,000 clients that ask next to 10,000 silent ones, into benchmarks/crowds.json and docs (3 minutes)
	@$(BIN)/python -m benchmarks.crowds

bench-scale: setup ## measure large payloads, concurrent streams and growing work, into benchmarks/scale.json and docs (3 minutes)
	@$(BIN)/python -m benchmarks.scale

bench-credit: setup ## compare the adaptive window with fixed ones, into benchmarks/credit.json and docs (30 minutes)
	@$(BIN)/python -m benchmarks.credit --out benchmarks/credit.json --page

bench-spark: setup ## measure reading, relaying, writing, delays, memory and executors with Spark, into benchmarks/spark.json and docs (half an hour)
	@$(BIN)/python -m benchmarks.spark

bench-captures: setup ## measure captures into Parquet tables, with and without Spark, into benchmarks/captures.json and docs (10 minutes)
	@$(BIN)/python -m benchmarks.capture

bench-floods: setup ## measure what a flood costs a server and its other clients, into benchmarks/floods.json (2 minutes)
	@$(BIN)/python -m benchmarks.floods

spark-versions: setup ## test the Spark source with Spark 4.0, 4.1 and 4.2, each in an environment of its own in build/ (10 minutes)
	@$(BIN)/python -m tools.spark_versions

chaos: setup ## kill, pause and cut parts of the Spark pipelines, and count every row, into docs/chaos.md (an hour)
	@$(BIN)/python -m chaos

$(VENV)/bench-ready: $(VENV)/ready requirements/bench.txt
	@echo "setup: the benchmarks need grpcio, and altair for the chart"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps -r requirements/bench.txt && touch $@ \
	    || echo "setup: that failed; the report lists what cannot run without it"

interop: setup ## run every case with other implementations of RSocket, into docs/interop.md (JavaScript needs npm, Java Maven)
	@$(BIN)/python -m interop

interop-smoke: setup ## run a few cases with each implementation
	@$(BIN)/python -m interop --smoke

lock: ## update requirements/lock.txt to the newest versions allowed
	@PYTHON=$(PYTHON) tools/lock.sh

clean: ## remove everything that the targets made
	rm -rf $(VENV) build dist interop/node_modules interop/js?/node_modules benchmarks/peers/js/node_modules benchmarks/peers/jeri/classes .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
