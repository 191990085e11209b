# make demo and make test need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHOTS ?=
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test interop lint types check tiny-clip clean

help:
	@echo "make demo [SHOTS=folder]   save screenshots, embed them, search them"
	@echo "make test                  the whole test suite"
	@echo "make interop               the tests with the real memini-ai and videre-mcp"
	@echo "make check                 lint, types and layers"
	@echo "make tiny-clip             train the demo's CLIP again"

demo: $(VENV)/.demo
	@"$(BIN)/python" -m vision_worker.demo $(if $(SHOTS),--shots "$(SHOTS)")

test: $(VENV)/.dev
	@"$(BIN)/python" -m pytest

interop: $(VENV)/.dev
	@"$(BIN)/python" -m tests.interop.environments
	@"$(BIN)/python" -m pytest tests/interop

lint: $(VENV)/.dev
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .

types: $(VENV)/.dev
	@"$(BIN)/mypy"

check: lint types
	@"$(BIN)/lint-imports"

tiny-clip: $(VENV)/.demo
	@"$(BIN)/python" -m vision_worker.demo.train --out vision_worker/demo/tiny-clip

$(VENV)/.python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; say which with make PYTHON=..."; exit 1; }
	@"$(PYTHON)" -m venv "$(VENV)"
	@touch "$@"

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "Installing the packages (once) ..."
	@"$(BIN)/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch "$@"

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "Installing the packages (once) ..."
	@"$(BIN)/python" -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch "$@" "$(VENV)/.demo"

clean:
	@rm -rf "$(VENV)" .venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis
