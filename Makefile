# make demo | demo-modern | test | check | torture | format | compile | clean; see README.md
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Text of your own: make demo SOURCES='my poems.jsonl'. By way of the shell's environment, so that names may
# hold spaces, quotes and semicolons.
SOURCES ?=
export SOURCES STORE
UV_VERSION := 0.13.8

# What pip already knows (local wheels) is passed on to uv, which reads no pip.conf.
FIND_LINKS = $$($(BIN)/python -m pip config list 2>/dev/null | sed -n "s/^.*find-links='\(.*\)'$$/\1/p" | tr ' ' '\n' | sort -u | paste -sd, -)

.PHONY: install demo demo-modern test check lint types unit torture format compile clean

install: $(VENV)/.ready

# uv is tried first (22 s against pip's 87 s on an idle machine); pip does the same without it.
$(VENV)/.ready: pyproject.toml constraints/all.txt
	$(PYTHON) -m venv $(VENV)
	if $(BIN)/python -m pip install -q uv==$(UV_VERSION) && \
	   UV_SYSTEM_CERTS=1 UV_COMPILE_BYTECODE=1 UV_FIND_LINKS=$(FIND_LINKS) \
	   $(BIN)/uv pip install -q --python $(BIN)/python -c constraints/all.txt -e '.[dev]'; then :; \
	else $(BIN)/python -m pip install -q -c constraints/all.txt -e '.[dev]'; fi
	touch $@

# The scarce genres twice: chosen on the validation split (docs/recipe.md).
demo: install
ifeq ($(SOURCES),)
	@$(BIN)/yanmo run --store "$${STORE:-runs/demo}" --channel demo \
	    --set curate_sources=corpus/small.jsonl.zst --set balance_quotas=ci=200%,fu=200%
	@echo "With text of your own (.txt, .jsonl, .parquet, a folder): make demo SOURCES='my text.txt'"
	@echo "Modern text with Latin, digits and code: make demo-modern"
else
	@$(BIN)/yanmo run --store "$${STORE:-runs/mine}" --channel mine --set "curate_sources=$$SOURCES"
endif

# Novels in the vernacular, and documents with Latin, digits and code; pieces of a chapter stay together.
demo-modern: install
	@$(BIN)/yanmo run --store "$${STORE:-runs/modern}" --channel modern \
	    --set curate_sources=corpus/modern.jsonl.zst --set 'curate_config=split_by: source'
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
