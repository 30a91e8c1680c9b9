# Every target sets itself up: `make test` in a fresh clone is enough.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Everything that a test touches; who only uses the program needs none of the extras.
EXTRAS := dev,autoattack,docs,figures,hf,images,onnx,pandas,parquet,ray,timm

.PHONY: setup demo test slow fuzz check docs gpu bench peers parity rehearsal results clean

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

# Neighbouring tests share what they set up, so each worker takes a stretch of them, and helps the others at the end.
test: setup  ## the test suite, on all cores
	$(BIN)/pytest -n auto --dist worksteal -m "not slow" --durations=10

slow: setup  ## long evidence: every solver on every real net in ../shared/nets, and many kills
	$(BIN)/pytest -m slow -s

fuzz: setup  ## every reader on 5000 damaged or forged files of each kind
	ADVFRONTIER_FUZZ=5000 $(BIN)/pytest -n auto tests/fuzz

check: setup  ## style, types, and which room imports from which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python scripts/nested_comprehensions.py
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup  ## the site, in build/site; any warning is an error
	$(BIN)/python -m zensical build --strict --clean

gpu: setup  ## on a GPU: the engine's tests under a guard against waits, then the overheads
	$(BIN)/python scripts/gpu.py

# Other libraries to compare with, apart from the environment; none of what they depend on is needed.
build/peers/ready: .venv/program
	$(PIP) --no-deps --target build/peers adv-lib==0.2.8 eagerpy==0.30.0 foolbox==3.3.4 torchattacks==3.5.1 \
		adversarial-robustness-toolbox==1.20.1 secml-torch==1.5 cloudpickle joblib narwhals scikit-learn six threadpoolctl
	touch $@

peers: setup build/peers/ready  ## our solvers beside those of other libraries: time and distance
	OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_peers.py

bench: setup build/peers/ready  ## overhead, other libraries, time to AutoAttack's AOI, memory, allocation: an hour
	failed=; for name in overhead peers time_to_aoi memory allocation; do \
		OMP_NUM_THREADS=1 $(BIN)/python scripts/bench_$$name.py || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "beyond a bar:$$failed"; exit 1; }

parity: setup  ## distances against the recorded figures of other implementations in ../shared/reference
	$(BIN)/python scripts/parity.py && $(BIN)/python scripts/parity_autoattack.py

# RobustBench requires a version of timm, so it gets an environment of its own, without ours of timm and torchvision.
REHEARSAL := build/rehearsal/.venv/bin
build/rehearsal/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/rehearsal/.venv
	grep -v -E '^(timm|torchvision)==' constraints.txt > build/rehearsal/constraints.txt
	$(REHEARSAL)/pip install --quiet --disable-pip-version-check -c build/rehearsal/constraints.txt torch
	$(REHEARSAL)/pip install --quiet --disable-pip-version-check -c build/rehearsal/constraints.txt \
		-e '.[robustbench,images,autoattack,figures,pandas,parquet]'
	touch $@

rehearsal: build/rehearsal/ready  ## the paper's benchmark on its architectures, with random weights: an hour
	OMP_NUM_THREADS=1 $(REHEARSAL)/python scripts/rehearsal.py

# Traces are kept in build/results: interrupted, the same command resumes; once they are there, it takes minutes.
results: setup  ## the paper's experiments on the embedded models, docs/results.md, and how far it moved: hours; SAMPLES=100 for more images
	$(BIN)/advfrontier bench run fashion-mnist --out build/results --page docs/results.md $(if $(SAMPLES),--samples $(SAMPLES))
	$(BIN)/python scripts/where_it_loses.py
	$(BIN)/python scripts/compare_results.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
