PYTHON  ?= python3
WORKERS ?= 2
SEEDS   ?= 20000
ARGS    ?=

BIN := .venv/bin
SETUP := .venv/.stamp .engine/.stamp node_modules/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo api test check format bench simulate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(SETUP) ## create the environments and install the pinned packages

demo: setup ## start an embedded engine and watch several processes share a limit
	$(BIN)/python tools/demo.py $(ARGS)

api: setup ## start the limiter over HTTP on an embedded engine, to be called with curl
	@$(BIN)/python tools/serve.py

test: setup ## run the tests (ARGS="-k name" for some of them)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

check: setup ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup .peer/.stamp ## measure, against the peer as well (QUICK=1: in a few minutes)
	@PYTHONPATH=client:constructs:lambdas:tools:. $(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

simulate: setup ## run the simulator over SEEDS seeds
	PYTHONPATH=client:tools:. $(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

clean: ## remove the environments and everything built
	rm -rf .venv .engine .peer node_modules dist build cdk.out
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than what it was made from, so a second run installs nothing.
.venv/.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Headgate needs Python 3.11 or newer; $(PYTHON) is older. Use make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[aio,cdk,cli,dev]' --constraint constraints.txt
	@touch $@

.engine/.stamp: constraints-engine.txt
	$(PYTHON) -m venv .engine
	.engine/bin/python -m pip install --quiet ministack boto3 --constraint constraints-engine.txt
	@touch $@

# What the benchmarks compare with: never a dependency.
.peer/.stamp: constraints-peer.txt
	$(PYTHON) -m venv .peer
	.peer/bin/python -m pip install --quiet zae-limiter --constraint constraints-peer.txt
	@touch $@

node_modules/.stamp: package.json package-lock.json .npmrc
	npm ci --loglevel=error
	@touch $@
