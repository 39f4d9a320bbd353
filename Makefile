# Two commands do everything: `make demo` and `make test`. `VENV=DIR` uses another environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stiffnet-installed
# What was installed, and from where: a change of either installs again.
WANTED := $(shell cat pyproject.toml Makefile | cksum | tr -d ' ') $(CURDIR)
# One thread a process, since pytest-xdist runs two. Sums of two threads round otherwise than those of one.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo test test-all lint install benchmarks clean

demo: install
	$(BIN)/stiffnet demo --out demo

test: lint
	$(PYTEST)

test-all: lint
	$(PYTEST) -m "slow or not slow"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmarks: install
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/fold.py

install:
	@if [ ! -x $(BIN)/python ]; then $(PYTHON) -m venv $(VENV); fi
	@if [ "$$(cat $(STAMP) 2>/dev/null)" != "$(WANTED)" ]; then \
		$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && \
		$(BIN)/python -m pip install --quiet --editable . --group dev && \
		echo "$(WANTED)" > $(STAMP); \
	fi

clean:
	rm -rf demo .pytest_cache .ruff_cache .mypy_cache build dist
