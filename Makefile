# Every target sets itself up: `make test` in a fresh clone is enough.
PYTHON ?= python3
BIN := .venv/bin
# Everything that a test touches; who only uses the program needs none of the extras.
EXTRAS := dev,autoattack,figures,hf,images,onnx,parquet,ray,robustbench,timm

.PHONY: setup demo test slow check bench parity results clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: setup  ## an embedded model in four norms, with its report
	$(BIN)/advfrontier demo

test: setup  ## the test suite, on all cores
	$(BIN)/pytest -n auto -m "not slow"

slow: setup  ## long evidence: every solver on every real net in ../shared/nets
	$(BIN)/pytest -m slow -s

check: setup  ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: setup  ## overhead of every solver over bare forward and backward passes, and the speed of the allocation
	$(BIN)/python scripts/bench_overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_allocation.py

parity: setup  ## distances against the recorded figures of other implementations in ../shared/reference
	$(BIN)/python scripts/parity.py

results: setup  ## the paper's experiments on the embedded models: hours, resumable
	$(BIN)/advfrontier bench run fashion-mnist --out build/results

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
