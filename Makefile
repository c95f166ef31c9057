# The commands of trepak. `make` lists them.

TRAIN := .venv/bin/python -m trepak.scripts.examples.launch_digits
BENCH := .venv/bin/trepak bench
BENCHES ?= bsp
SHELL := /bin/bash

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup train test lint format native-test bench soak clean

help: ## List the commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | \
	  awk -F '|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: ## Install all that is needed and build the native library
	@scripts/setup.sh

train: setup ## Train on real digits with two processes, from nothing to a saved model
	@$(TRAIN)

test: setup ## Run every check
	@scripts/check.sh

lint: setup ## Run ruff, mypy and clang-format
	@scripts/check.sh ruff format mypy clang-format

format: setup ## Format the sources in place
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .
	@find ops \( -name '*.cc' -o -name '*.h' \) -exec clang-format -i {} +

native-test: setup ## Test the native code: the ops, and the runtime with the sanitizers
	@scripts/check.sh native

bench: setup ## Make the figures of BENCHES="bsp …", into build/bench
	@mkdir -p build/bench
	@status=0; for name in $(BENCHES); do \
	  $(BENCH) $$name --json build/bench/$$name.json || status=1; \
	done; exit $$status

soak: setup ## Run the tests that take too long for every change
	@PYTEST_ARGS="-n 0 -m soak --timeout 7200" scripts/check.sh pytest

clean: ## Remove what was built (.venv and the cached wheels stay)
	@rm -rf build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@rm -f ops/_trepak_ops.tf*.so
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
