# make demo | demo-modern | test | check | torture | format | compile | lock | clean; see README.md
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Text of your own: make demo SOURCES='my poems.jsonl'. By way of the shell's environment, so that names may
# hold spaces, quotes and semicolons.
SOURCES ?=
export SOURCES STORE
# The build of torch: cpu, cuda, or nothing for the one that fits this machine. TORCH_INDEX: a mirror of torch's
# index for CPUs.
TORCH ?=
TORCH_INDEX ?=
export VENV TORCH TORCH_INDEX

.PHONY: install lock demo demo-modern test check lint types unit torture format compile clean again

install: $(VENV)/.ready

LOCKS := $(patsubst %,constraints/%.txt,base cpu cuda build uv)
$(VENV)/.ready: pyproject.toml $(LOCKS) $(if $(TORCH),again)
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) is not on this machine: install Python 3.11 to 3.13" \
	    "(Debian: apt-get install python3-venv), or name yours: make PYTHON=/path/to/python3" >&2; exit 78; }
	@"$(PYTHON)" install

# pyproject.toml's versions, and those of all that they need, with hashes, for every supported machine.
# UPGRADE: names of packages that may move.
UPGRADE ?=
lock: install
	$(BIN)/python install/lock.py --upgrade $(UPGRADE)

# The scarce genres twice: chosen on the validation split (docs/recipe.md).
demo: install
ifeq ($(SOURCES),)
	@$(BIN)/yanmo run --store "$${STORE:-runs/demo}" --channel demo \
	    --set data_sources=corpus/small.jsonl.zst --set data_quotas=ci=200%,fu=200%
	@echo "With text of your own (.txt, .jsonl, .parquet, a folder): make demo SOURCES='my text.txt'"
	@echo "Modern text with Latin, digits and code: make demo-modern"
else
	@$(BIN)/yanmo run --store "$${STORE:-runs/mine}" --channel mine --set "data_sources=$$SOURCES"
endif

# Novels in the vernacular, and documents with Latin, digits and code; pieces of a chapter stay together.
demo-modern: install
	@$(BIN)/yanmo run --store "$${STORE:-runs/modern}" --channel modern \
	    --set data_sources=corpus/modern.jsonl.zst --set curate.split_by=source
	@echo "With text of your own (.txt, .jsonl, .parquet, a folder): make demo SOURCES='my text.txt'"

test: lint types unit

check: test

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

# Four workers on two cores: some tests wait (for a frozen rank, a lease, a server) and use no core meanwhile.
# worksteal gives a worker neighbouring tests, which share fixtures. Bytecode saves 0.1 s of each process.
TEST_WORKERS ?= 4
unit: install
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal

# Faults on a folder and on a real S3 server, an hour and more; --brief does less: docs/torture.md.
# make torture TORTURE="--store file --kills 50 --seed 7 --only kills"
TORTURE ?=
torture: install
	PYTHONPATH=tests $(BIN)/python -m torture $(TORTURE)

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compile: install
	$(BIN)/yanmo compile

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
