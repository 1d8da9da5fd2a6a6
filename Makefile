# The commands of the repository. `make run` and `make test` work on a bare machine with Python 3.11+.

PYTHON ?= python3
VENV   := .venv
VERIFIERS := .venv-verifiers
BIN    := $(VENV)/bin
# one worker more than cores, because tests also wait: for child processes, deadlines, a browser
TESTS  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(shell expr $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 1) --dist worksteal
# setuptools warns of every editable installation that it is one
PIP    := PYTHONWARNINGS="ignore:Editable installation" \
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
# all cores, where pip takes one; what is no Python (templates of packages) stays as it is
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib ingot || true

.PHONY: run test test-all fast-tests all-tests lint docs docs-check reference systems clean

run: $(VENV)/.run  ## raw text to a thinking, tool-calling tiny model on this machine's CPU
	$(BIN)/ingot run recipes/quickstart.yaml

test: $(VENV)/.dev  ## everything that CI checks, in minutes; mypy has one core and takes minutes: tests run beside it
	tools/system-programs
	$(MAKE) --jobs 2 lint fast-tests

test-all: $(VENV)/.dev  ## the slow checks too
	tools/system-programs
	$(MAKE) --jobs 2 lint all-tests

fast-tests: $(VENV)/.dev
	$(TESTS) -m "not slow"

all-tests: $(VENV)/.dev $(VERIFIERS)/.done
	INGOT_VERIFIERS_PYTHON=$(abspath $(VERIFIERS))/bin/python $(TESTS) --hypothesis-profile many

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

reference: $(VENV)/.dev  ## write the option reference and the tables of stages and commands from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/tables.py

systems: $(VENV)/.dev  ## write the pages of docs/systems/ from the presets
	$(BIN)/python tools/systems.py

docs-check: $(VENV)/.dev  ## fail if a generated page is out of date, as tests do
	$(BIN)/python tools/reference.py --check
	$(BIN)/python tools/tables.py --check
	$(BIN)/python tools/systems.py --check

docs: reference systems  ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

$(VENV)/bin/python:  # an old pip takes half as long again
	$(PYTHON) -m venv $(VENV)
	$(PIP) --quiet --upgrade pip

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python  ## with what the commands of README's first screen use
	@echo "installing into $(VENV), once; most of it is torch"
	$(PIP) -e ".[data,serve]"
	@echo "compiling what was installed"
	@$(COMPILE)
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV), once; most of it is torch"
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps bfcl-eval  # for its services alone: it requires clients of a dozen providers, and an old numpy
	@echo "compiling what was installed"
	@$(COMPILE)
	touch $@ $(VENV)/.run

$(VERIFIERS)/.done:  # verifiers wants other versions of openai and mcp than ours: tests/envs/tasks/test_verifiers_package.py
	$(PYTHON) -m venv $(VERIFIERS)
	$(VERIFIERS)/bin/python -m pip install --quiet --disable-pip-version-check verifiers==0.4.0
	touch $@

clean:
	rm -rf $(VENV) $(VERIFIERS) site build *.egg-info
