# make demo | demo-chat | demo-modern | test | test-all | test-cluster | check | chaos | bench | format | compile | docs | images | lock | clean; see README.md
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Text of your own: make demo SOURCES='my poems.jsonl'. By way of the shell's environment, so that names may
# hold spaces, quotes and semicolons.
SOURCES ?=
export SOURCES
# The build of torch: cpu, cuda, or nothing for the one that fits this machine. TORCH_INDEX: a mirror of torch's
# index for CPUs.
TORCH ?=
TORCH_INDEX ?=
export VENV TORCH TORCH_INDEX

.PHONY: install manifest-tools sink-tools ray-tools docs example-tools lock demo demo-chat demo-modern test test-all test-cluster check lint types chaos bench format compile images clean again

install: $(VENV)/.ready

LOCKS := $(patsubst %,constraints/%.txt,base cpu cuda build uv)
$(VENV)/.ready: pyproject.toml $(LOCKS) $(if $(TORCH),again)
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) is not on this machine: install Python 3.11 to 3.13" \
	    "(Debian: apt-get install python3-venv), or name yours: make PYTHON=/path/to/python3" >&2; exit 78; }
	@"$(PYTHON)" install

# What renders manifests/ and knows the fields of Kubernetes' objects (168 MB): their tests skip without it.
manifest-tools: install
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints/manifests.txt

# What the tests of sinks need: TensorBoard, MLflow and Weights & Biases.
sink-tools: install
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints/sinks.txt

# Ray, for `--engine ray` and its tests (300 MB).
ray-tools: install
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints/ray.txt

# The pages as a site, in build/site: English, and Chinese below zh/.
docs: install
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints/docs.txt
	$(BIN)/python -W ignore docs/site/build.py

# What the notebook examples/tour.ipynb needs, and its test.
example-tools: install
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints/examples.txt

# pyproject.toml's versions, and those of all that they need, with hashes, for every supported machine.
# UPGRADE: names of packages that may move.
UPGRADE ?=
lock: install
	$(BIN)/python install/lock.py --upgrade $(UPGRADE)

# The scarce genres twice, by the validation split (docs/explanation/recipe.md). Two threads whatever the CPUs, so
# that README's digits hold everywhere.
demo: install
ifeq ($(SOURCES),)
	@$(BIN)/yanmo run --store "$${STORE:-runs/demo}" --channel demo \
	    --set data_sources=corpus/small.jsonl.zst --set data_quotas=ci=200%,fu=200% --set train.threads=2
	@echo "With text of your own (.txt, .jsonl, .parquet, a folder): make demo SOURCES='my text.txt'"
	@echo "Modern text with Latin, digits and code: make demo-modern"
	@echo "A chat model from this one: make demo-chat"
else
	@$(BIN)/yanmo run --store "$${STORE:-runs/mine}" --channel mine --set "data_sources=$$SOURCES"
endif

# The champion of `make demo`, tuned on the bundled chats; measured on fewer texts than a night would.
demo-chat: install
	@$(BIN)/yanmo run --pipeline chat --store "$${STORE:-runs/demo}" --channel chat --set model_start=demo/champion \
	    --set evaluate.budget_documents=60 --set evaluate.task_documents=25 --set evaluate.samples=8 --set train.threads=2
	@echo "Ask it: $(BIN)/yanmo generate --chat 什么是词？ --model chat --store $${STORE:-runs/demo}"
	@echo "With chats of your own, beside the text: --set data_sources=TEXT,chats.jsonl (docs/tutorials/chat.md)"

# Novels in the vernacular, and documents with Latin, digits and code; pieces of a chapter stay together.
demo-modern: install
	@$(BIN)/yanmo run --store "$${STORE:-runs/modern}" --channel modern \
	    --set data_sources=corpus/modern.jsonl.zst --set curate.split_by=source --set train.threads=2
	@echo "With text of your own (.txt, .jsonl, .parquet, a folder): make demo SOURCES='my text.txt'"

# Lint, types and the quick tests. DRAW: a commit, whose hash chooses which of the costly tests run too, for
# twelve minutes or MINUTES: what CI does (tests/selection.py).
# Three workers on two cores: some tests wait (for a frozen rank, a lease, a server) and use no core meanwhile.
TEST_WORKERS ?= 3
DRAW ?=
MINUTES ?= 12
test: install
	@$(BIN)/python tests/verdict.py --workers $(TEST_WORKERS) $(if $(DRAW),--draw "$(DRAW)" --minutes $(MINUTES))

check: test

# Everything that this machine can run: every kill, whole roads, every layout of processors, real servers.
test-all: install
	@$(BIN)/python tests/verdict.py --workers $(TEST_WORKERS) --all

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

# Runs in the Kubeflow Pipelines that KUBECONFIG and KFP_ENDPOINT name: tests/cluster/README.md.
# CLUSTER_TESTS="-m 'cluster and not fault and not road'": without faults.
CLUSTER_TESTS ?= -m cluster
test-cluster: install
	$(BIN)/python -m pytest tests/cluster -n 0 -v $(CLUSTER_TESTS)

# Breaks it on purpose: kills, full disks, bad networks, hostile input, nights; for hours, --brief does less:
# benchmarks/NOTES.md. make chaos CHAOS="--only kills --store s3 --seed 7"
CHAOS ?=
chaos: install
	PYTHONPATH=tests:components:pipelines $(BIN)/python -m chaos $(CHAOS)

# Beside others, in turn: docs/reference/measurements.md. make bench ONLY=tokens,generation STORE=runs/demo
ONLY ?=
BENCH ?=
bench: install
	PYTHONPATH=benchmarks $(BIN)/python -m bench $(if $(ONLY),--only "$(ONLY)") $(if $(STORE),--store "$$STORE") $(BENCH)

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compile: install
	$(BIN)/yanmo compile

# With docker or podman, no Python needed: images/README.md. IMAGES: data, train, cluster or several of them.
IMAGES ?=
ENGINE ?=
PREFIX ?=
BASE   ?=
BUILD  ?=
export ENGINE PREFIX BASE BUILD
images:
	@images/build.sh $(IMAGES)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
