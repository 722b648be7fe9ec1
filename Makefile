# Everything a fresh machine needs: Python 3.11 or later with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
BNNP_DATA ?= $(wildcard ../shared/data)
# Waiting threads spin for a moment only: on a machine that does other work too, long spinning slows training many times.
GOMP_SPINCOUNT ?= 10000
export BNNP_DATA GOMP_SPINCOUNT

.PHONY: demo test slow lowest newest package cards tutorials lint docs bench clean

demo: .venv/installed  ## Meta-train on sawtooth tasks, print scores beside the oracle's, write figures (about 5 minutes)
	$(BIN)/bnnp demo --out demo

test: lint  ## Lint, check types and the import arrow, run the tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

slow: .venv/installed  ## The studies that take minutes
	$(BIN)/pytest -m slow

lowest newest: .venv/installed  ## Try the minimum, or the newest, versions of all dependencies in an empty environment (minutes)
	PYTHONPATH=tests $(BIN)/python -m project.environments $@

package: .venv/installed  ## Build wheel and sdist in dist/, and check what is in them
	PYTHONPATH=tests $(BIN)/python -m project.package dist

cards: .venv/installed  ## Write the cards of the models that ship (minutes)
	$(BIN)/python docs_tools/cards.py

tutorials: .venv/installed  ## Run the scripts of the tutorials, and write their pages (minutes)
	$(BIN)/python docs_tools/tutorials.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: .venv/installed  ## The documentation as a site, in site/
	$(BIN)/mkdocs build --strict
	for name in sawtooth heaviside gp curves; do $(BIN)/bnnp app zoo:$$name --source $$name --export site/zoo/$$name.html; done

bench: .venv/installed  ## Time a training step and a prediction, beside a plain transcription and the machine's limit
	$(BIN)/bnnp bench --plain benchmarks/plain.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0 -e ".[data,grib,app,dev]"
	$(BIN)/python -c "import torch; assert torch.__version__.startswith('2.13.0'), torch.__version__"
	$(BIN)/pyright --version  # fetches what it needs, so that later commands work offline
	$(BIN)/python -c "from bnnp.numerics.backends.numba.binding import compile_loops; compile_loops()"  # once, so that nobody waits for it later
	touch $@

clean:
	rm -rf .venv demo dist site
