# The verbs of this repository. CI calls these and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# torch first and by itself, held fast in every later install: left to a resolver, it comes with gigabytes of CUDA.
TORCH ?= 2.13.0
EXAMPLES ?= 2000
SLOW ?= slow

.PHONY: help setup check test test-slow test-hostile test-faults bench bench-loop bench-ingest numbers coverage docs format build

help:  ## say what the verbs do
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /: /'

setup: $(VENV)/.ready  ## make a virtual environment with everything for development

$(VENV)/.ready: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)"
	$(BIN)/python -c "import torch; print(f'torch=={torch.__version__}')" > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[dev,zoo,volumes,train,ray,onnx,openvino,executorch,int8,predict,budget,docs]'
	touch $@

check: setup  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup  ## the fast tier: under 3 minutes on 2 cores
	$(BIN)/pytest -n 2 -m "not slow" --durations 5

test-slow: setup  ## the slow tier: EXAMPLES (2,000) for every law, and the tests marked SLOW (slow)
	CRUCIFORM_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n 2 tests/property --timeout 1800
	$(BIN)/pytest -n 2 -m "$(SLOW)" --durations 40

test-hostile: setup  ## 40,000 hostile inputs, under 8 minutes on 2 cores; records results/hostile.json
	$(BIN)/python tests/hostile/run.py --record

test-faults: setup  ## 1,400 injected faults, 8 minutes on 2 cores; records results/faults.json and docs/reliability.md
	$(BIN)/python tests/faults/run.py --record
	$(BIN)/python benchmarks/numbers_in_texts.py

numbers: setup  ## render README, ARCHITECTURE and docs from docs/templates/ and results/
	$(BIN)/python benchmarks/numbers_in_texts.py

coverage: setup  ## convert every network of timm, torchvision and MONAI: most of an hour; can be interrupted
	$(BIN)/cruciform coverage --library all --result results/coverage.json --table docs/coverage.md

bench: setup  ## measure, and record into results/
	$(BIN)/python benchmarks/plan_arithmetic.py
	$(BIN)/python benchmarks/initialisation.py
	$(BIN)/python benchmarks/loop.py

bench-loop: setup  ## what the training loop costs over a bare one; prints the ratio, records results/loop.json
	$(BIN)/python benchmarks/loop.py

bench-ingest: setup  ## how fast shards are read, and whether damage is found; records results/ingest.json
	$(BIN)/python benchmarks/ingest.py

docs: setup  ## build the site, warnings as errors, and check that links, anchors and numbers of the texts hold
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # --quiet would hide warnings from --strict too
	$(BIN)/pytest -q tests/house/test_texts.py

build: setup  ## build the wheel and the source distribution
	$(BIN)/python -m build --no-isolation --outdir build/dist

format: setup  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
