# `make` lists the commands. Each sets up what it needs first; the set-up is quick when nothing has changed.

BIN := .venv/bin
# Python programs without a .py ending, which the tools below do not find by themselves.
PYTHON_SCRIPTS = $(shell grep -l '^\#!.*python' $$(find scripts -maxdepth 1 -type f ! -name '*.py'))

.DEFAULT_GOAL := help
.PHONY: help setup demo generation test test-fast test-compose chaos bench bench-check check format docs lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s%s\n", $$1, $$2}' Makefile

setup: ## set up .venv with the packages, Redis and runsc (root; downloads what is missing)
	@scripts/setup

demo: ## set up, start a small cluster, run examples/quickstart.py restored and cold, stop everything (root)
	@scripts/setup
	@scripts/demo

# Settings of `make generation`: how many checkpoints besides the empty one, their size together, what to plan for (a
# file of import sets, or `traffic` for what the routers counted; without it the flavor's own corpus), extras such as torch.
CHECKPOINTS ?= 15
MEGABYTES ?= 4096
CORPUS ?=
EXTRAS ?=

generation: ## build a generation of checkpoints (root); CHECKPOINTS=15 MEGABYTES=4096 CORPUS=FILE|traffic EXTRAS=torch
	@scripts/setup
	$(BIN)/python -m workers.pipeline --checkpoints $(CHECKPOINTS) --megabytes $(MEGABYTES) \
		$(if $(filter traffic,$(CORPUS)),--from-traffic,$(if $(CORPUS),--corpus $(CORPUS))) \
		$(foreach extra,$(EXTRAS),--extra $(extra))

# Tests without sandboxes mostly wait. The others count what the machine has, and need its cores.
SIDE_BY_SIDE = --numprocesses 2 --dist loadfile

test: ## run every test but those of docker compose; 40 seconds of `make chaos` are among them (root)
	@scripts/setup
	$(BIN)/pytest -m "not sandbox" $(SIDE_BY_SIDE) --ignore=tests/compose
	$(BIN)/pytest -m sandbox --ignore=tests/compose

# Settings of `make chaos`: the seed of a run to repeat (a new one without it), and for how long there are faults.
SEED ?=
MINUTES ?= 5

chaos: ## kill, freeze and cut off every part under load and check the promises (root); SEED= MINUTES=5
	@scripts/setup
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

test-fast: ## run the tests that need neither root nor runsc
	@scripts/setup python redis
	$(BIN)/pytest -m "not sandbox" $(SIDE_BY_SIDE) --ignore=tests/compose

test-compose: ## build the image and test compose.yaml with a Docker Engine (DOCKER_HOST names another than this machine's)
	@scripts/setup python runsc
	$(BIN)/pytest tests/compose

# Settings of `make bench`: what to measure, of start (or start-pandas and so on), calls, router, workers, cost,
# week, simulation, reality.
SECTIONS ?=

bench: setup-bench ## measure beside what else there is, with nothing else running (root, a generation); SECTIONS="start calls"
	$(BIN)/python -m benchmarks --sections "$(SECTIONS)"

bench-check: setup-bench ## measure for a few minutes and fail when a ratio is worse than in benchmarks/baseline.json (root)
	$(BIN)/python -m benchmarks --check

.PHONY: setup-bench
setup-bench:
	@scripts/setup
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes --requirement benchmarks/requirements.lock

check: ## check format, lint and types
	@scripts/setup python
	$(BIN)/ruff format --check . $(PYTHON_SCRIPTS)
	$(BIN)/ruff check . $(PYTHON_SCRIPTS)
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/get-runsc

format: ## format the code and sort its imports
	@scripts/setup python
	$(BIN)/ruff check --select I --fix . $(PYTHON_SCRIPTS)
	$(BIN)/ruff format . $(PYTHON_SCRIPTS)

docs: ## write the reference pages from the code, and build the documentation into site/
	@scripts/setup python
	$(BIN)/python scripts/cli_reference.py
	$(BIN)/python scripts/settings_reference.py
	$(BIN)/mkdocs build --strict

lock: ## make requirements.lock and benchmarks/requirements.lock anew from pyproject.toml
	@scripts/setup python
	$(BIN)/uv pip compile pyproject.toml --extra server --extra otel --group dev --universal --python-version 3.11 \
		--generate-hashes --quiet --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra server --group bench --constraints requirements.lock \
		--overrides benchmarks/overrides.txt --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
		--output-file benchmarks/requirements.lock

clean: ## remove .venv and everything the tools wrote here (fetched runsc versions stay in the user's cache)
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
