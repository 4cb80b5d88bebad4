# The habits of the project: `make help` lists them. `make reports` and `make test` are all a new user needs.
SHELL := /bin/bash
VENV ?= .venv
WORKERS ?= 2
TESTS ?=
CORES ?= all
# what narrows a run, such as CONFIG="scale=paper studies=digits_mlp backends=jax"
CONFIG ?=

BIN := $(abspath $(VENV))/bin
# the stamp carries a checksum of what the environment is made from: equal content means ready
READY := $(VENV)/ready-$(firstword $(shell cat requirements.lock requirements-no-deps.lock pyproject.toml | cksum))
IN_ENVIRONMENT := PATH="$(BIN):$$PATH"
# a worker takes whole files, in the order of tests/conftest.py
PYTEST := python -m pytest -rs -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help reports docs test test-all test-fast test-gpu guards lint bench bench-peers format lock environment clean distclean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

reports: $(READY)  ## run what is missing of the tour, or of what CONFIG says, and render the site
	@$(IN_ENVIRONMENT) snakemake --cores $(CORES) $(if $(CONFIG),--config $(CONFIG) --) reports

docs: $(READY)  ## render the documentation into docs/site, with the reference of the Python interface
	@$(IN_ENVIRONMENT) sphinx-build -c docs -W --keep-going --quiet . docs/site
	@echo "Open docs/site/docs/index.html"

test: $(READY)  ## run the tests; minutes
	@$(IN_ENVIRONMENT) $(PYTEST) $(TESTS)

test-all: $(READY)  ## run those that take minutes too, such as the one on a real Slurm
	@$(IN_ENVIRONMENT) XLA_FLAGS= $(PYTEST) -m "not gpu" $(TESTS)

test-fast: $(READY)  ## run the tests that take seconds
	@$(IN_ENVIRONMENT) $(PYTEST) -m "not slow and not long and not gpu" $(TESTS)

test-gpu: $(READY)  ## run the tests that need a GPU
	@$(IN_ENVIRONMENT) XLA_FLAGS= python -m pytest -m gpu $(TESTS)

guards: $(READY)  ## check that a refactoring changed no number, verdict, name or page; UPDATE=1 freezes the new state
	@$(IN_ENVIRONMENT) $(PYTEST) -m "not gpu" $(if $(UPDATE),--update) tests/guards tests/test_bad_input.py \
	  tests/curvebench/test_golden.py tests/reports/test_browser.py

lint: $(READY)  ## check style, types and the Snakefile
	@$(IN_ENVIRONMENT) ruff check .
	@$(IN_ENVIRONMENT) ruff format --check .
	@$(IN_ENVIRONMENT) mypy
	@$(IN_ENVIRONMENT) snakefmt --check Snakefile
	@$(IN_ENVIRONMENT) snakemake --lint

bench: $(READY)  ## time the kernels on the last commits
	@$(IN_ENVIRONMENT) python -m benchmarks.kernels.history --commits 3

bench-peers: $(READY)  ## compare the kernels with their peers, in place
	@$(IN_ENVIRONMENT) python -m pytest benchmarks/kernels/bench_peers.py --benchmark-only \
	  --benchmark-columns=median,iqr,rounds
	@$(IN_ENVIRONMENT) python -m benchmarks.kernels.ratios

format: $(READY)  ## mend what can be mended of the style
	@$(IN_ENVIRONMENT) ruff check --fix .
	@$(IN_ENVIRONMENT) ruff format .
	@$(IN_ENVIRONMENT) snakefmt Snakefile

environment: $(READY)  ## make the environment in .venv, from requirements.lock

$(READY):
	@set -e; \
	if ! test -x $(VENV)/bin/python; then \
	  found=; for candidate in $(or $(PYTHON),python3.11 python3); do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2> /dev/null; then \
	      found="$$candidate -m venv"; break; \
	    fi; \
	  done; \
	  if test -z "$$found$(PYTHON)" && command -v uv > /dev/null; then found="uv venv --seed --python 3.11"; fi; \
	  if test -z "$$found"; then \
	    echo "curvebench needs Python 3.11, and this is not it: $(or $(PYTHON),python3.11, python3);" \
	      "install uv (https://docs.astral.sh/uv), which make then gets it with, or Python 3.11 itself, and name" \
	      "it if need be: make PYTHON=/path/to/python3.11" >&2; exit 2; \
	  fi; \
	  echo "Making the environment in $(VENV) (some minutes, 2.4 GB with the CPU build of torch)"; \
	  $$found $(VENV) || { rm -rf $(VENV); exit 2; }; \
	fi; \
	$(VENV)/bin/python -m pip install --quiet --requirement requirements.lock; \
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --requirement requirements-no-deps.lock \
	  --editable .; \
	rm -f $(VENV)/ready-*; \
	touch $@

# Raise a version: `.venv/bin/pip install NAME==VERSION`, `make lock`, `make test`.
lock:  ## write the lock files and environment.yml from what is installed in .venv
	@$(VENV)/bin/python -m pip freeze --all --exclude-editable \
	  | grep -Ev '^(pip|wheel)==|^(nvidia|cuda|triton|jax-cuda)' | sed 's/+[^ ]*$$//' | LC_ALL=C sort -f > $(VENV)/installed
	@sed -n 's/^\([^#]*==\).*/^\1/p' requirements-no-deps.lock > $(VENV)/names
	@grep -vf $(VENV)/names $(VENV)/installed > $(VENV)/pins
	@{ grep '^#' requirements.lock; cat $(VENV)/pins; } > $(VENV)/requirements.lock
	@{ grep '^#' requirements-no-deps.lock; grep -f $(VENV)/names $(VENV)/installed; } > $(VENV)/requirements-no-deps.lock
	@{ sed '/- pip:/q' environment.yml; sed 's/^/      - /' $(VENV)/pins; } > $(VENV)/environment.yml
	@mv $(VENV)/requirements.lock $(VENV)/requirements-no-deps.lock $(VENV)/environment.yml .

clean:  ## remove what runs and checks wrote; the environment and results/published stay
	@rm -rf results/specs results/runs results/tables results/figures results/logs results/kernels results/submissions results/checkpoints reports/site .snakemake docs/site .cache \
	  .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the environment too
	@rm -rf $(VENV) *.egg-info build
