# turnledger: everything a person or a pipeline runs. `make` alone lists it.
# A fresh clone needs Python 3.11 or newer and nothing else: each target makes its environment first.

VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
EXAMPLES ?= 20

.DEFAULT_GOAL := help
.PHONY: help environment simulate demo demo-down test properties lint bench samples fuzz

help:
	@echo "make demo                 watch it work: a fleet, a kill -9, the totals and the proof"
	@echo "make demo FILES=\"path …\"  what your own session files cost (turnledger harnesses lists whose)"
	@echo "make demo-down            stop the demo's servers and delete their data"
	@echo "make test                 all tests, against a real broker and database (ARGS=… for pytest)"
	@echo "make properties           the property tests alone, EXAMPLES=20 times as many examples as in make test"
	@echo "make lint                 style, types, fresh schemas"
	@echo "make simulate             thousands of seeds of faults against the ingest handler (SEEDS=20000; SEED=n: one again)"
	@echo "make bench                throughput and latency, as a table and JSON (ARGS=…)"
	@echo "make fuzz                 100,000 damaged harness files against the readers (ARGS=\"MUTATIONS FIRST_SEED\")"
	@echo "make samples DIR=…        what each harness file under DIR holds: sessions, calls, tokens"

environment:
	@python=$$(.ci/python) || { \
	    echo "turnledger: no Python 3.11 or newer was found (looked for python3.11, 3.12, 3.13, python3 and pyenv's versions); install one, for example: apt-get install python3.11 python3.11-venv, brew install python@3.13, or pyenv install 3.11" >&2; \
	    exit 2; }; \
	.ci/environment $(VENV) "$$python"

demo: environment
	@$(BIN)/turnledger demo $(ARGS) $(FILES)

demo-down: environment
	@$(BIN)/turnledger demo --down

test: environment
	@$(BIN)/python -m pytest $(ARGS)

properties: environment
	@TURNLEDGER_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/property --timeout=0 $(ARGS)

# Each of them runs, also when one before it failed. Schemas are held against what was there half a day ago: in a pipeline, HEAD is the change itself.
lint: environment
	@echo "turnledger: ruff check, ruff format, mypy --strict, schemas"
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	base=$$(git rev-list -1 --before='12 hours ago' HEAD 2>/dev/null); \
	$(BIN)/python -m turnledger.contract.schemas --check --base "$${base:-HEAD}" || failed=1; \
	exit $$failed

simulate: environment
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000)) $(ARGS)

bench: environment
	@$(BIN)/python -m tests.bench.run $(ARGS)

fuzz: environment
	@$(BIN)/python -m tests.fuzz.campaign $(ARGS)

samples: environment
	@test -n "$(DIR)" || { echo "make samples: say which folder: make samples DIR=path" >&2; exit 2; }
	@$(BIN)/python -m turnledger.harness.samples "$(DIR)"
