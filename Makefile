# Each target makes what it needs first: a virtual environment in .venv, filled again only when pyproject.toml or a
# variable below has changed. Nothing is installed outside it, but for a browser where `make test` finds none.

PYTHON ?= python3
# A build of PyTorch for the CPU is enough. On Linux, plain pip takes the one with CUDA, some GB; with PyTorch's own index
# of CPU builds in PIP_EXTRA_INDEX_URL it takes the small one. Another version: make demo TORCH='torch==2.14.1'
TORCH ?= torch==2.13.0
TYPESCRIPT ?= typescript@7.0.2
# Two: a browser or two ranks take both cores of a small machine. 0 runs them in one process.
WORKERS ?= 2

BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean FORCE

help:
	@echo 'make demo    watch three small trainings in a browser'
	@echo "make test    run the tests; a part of them: make test ARGS='tests/client -k clip'"
	@echo 'make lint    check style, types and the page'
	@echo 'make bench   run the benchmarks'
	@echo 'make clean   remove .venv and what was built'

demo: .venv/ready-to-run
	$(BIN)/gradsight demo $(ARGS)

test: .venv/ready-to-develop
	$(BIN)/python tests/browser.py
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

lint: .venv/ready-to-develop .venv/ready-to-check-the-page
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" .venv/node_modules/.bin/tsc --project web

bench: .venv/ready-to-develop
	set -e; for script in $(wildcard benchmarks/[!_]*.py); do $(BIN)/python $$script $(ARGS); done

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# A name on PATH is not yet a python that runs (pyenv has shims for absent ones), so each is asked for its version.
$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "making .venv with $$python"; \
	  $$python -m venv .venv || { rm -rf .venv; exit 1; }; \
	  exit 0; \
	done; \
	echo 'Gradsight needs Python 3.11 or newer and found none; name one: make PYTHON=/path/to/python3.12' >&2; exit 1

.venv/ready-to-run: pyproject.toml .venv/torch-asked-for
	@echo 'installing Gradsight and PyTorch into .venv (once, some minutes)'
	$(BIN)/python -m pip install $(TORCH) --editable '.[server,torch]'
	@touch $@

.venv/ready-to-develop: .venv/ready-to-run
	$(BIN)/python -m pip install $(TORCH) --editable '.[server,torch,postgres,parquet,tensorboard,dev]'
	@touch $@

.venv/ready-to-check-the-page: .venv/typescript-asked-for .venv/ready-to-develop
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --prefix .venv --no-audit --no-fund --no-update-notifier --loglevel error $(TYPESCRIPT)
	@touch $@

# These hold a variable's value and are written only when it has changed, so what depends on them is made again then.
.venv/torch-asked-for: FORCE | $(BIN)/python
	@echo '$(TORCH)' | cmp -s - $@ || echo '$(TORCH)' > $@

.venv/typescript-asked-for: FORCE | $(BIN)/python
	@echo '$(TYPESCRIPT)' | cmp -s - $@ || echo '$(TYPESCRIPT)' > $@
