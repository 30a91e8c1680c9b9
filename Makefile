# Every target sets itself up: `make test` in a fresh clone is enough.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Everything that a test touches; who only uses the program needs none of the extras.
EXTRAS := dev,autoattack,docs,figures,hf,images,onnx,pandas,parquet,ray,robustbench,timm

.PHONY: setup demo test slow fuzz check docs bench parity results clean

.venv/program: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/ready: .venv/program
	$(PIP) -e '.[$(EXTRAS)]'
	touch $@

setup: .venv/ready

demo: .venv/program  ## an embedded model in four norms, with its report
	$(BIN)/advfrontier demo

test: setup  ## the test suite, on all cores
	$(BIN)/pytest -n auto -m "not slow" --durations=10

slow: setup  ## long evidence: every solver on every real net in ../shared/nets, and many kills
	$(BIN)/pytest -m slow -s

fuzz: setup  ## every reader on 5000 damaged or forged files of each kind
	ADVFRONTIER_FUZZ=5000 $(BIN)/pytest -n auto tests/fuzz

check: setup  ## style, types, and which room imports from which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## the site, in build/site; any warning is an error
	$(BIN)/mkdocs build --strict --quiet

bench: setup  ## overhead of every solver over bare forward and backward passes, and the speed of the allocation
	$(BIN)/python scripts/bench_overhead.py
	OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_allocation.py

parity: setup  ## distances against the recorded figures of other implementations in ../shared/reference
	$(BIN)/python scripts/parity.py

# Traces are kept in build/results: interrupted, the same command goes on; once they are there, it takes minutes.
results: setup  ## the paper's experiments on the embedded models, and docs/results.md: hours; SAMPLES=100 for more images
	$(BIN)/advfrontier bench run fashion-mnist --out build/results --page docs/results.md $(if $(SAMPLES),--samples $(SAMPLES))

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
