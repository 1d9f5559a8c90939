# One command each, the same by hand and in CI.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DATA   ?=
MODE   ?= quick
# Processes that run the tests side by side; ARGS='-n 0' runs them in one, for a debugger.
PYTEST  = python -m pytest -n logical --maxprocesses 4 --dist worksteal
EVERY   = -m 'slow or not slow'
# What make test-slow draws its examples from; printed, so that SEED=… repeats a run.
SEED   := $(or $(SEED),$(shell date +%s))

# Processes that tests start compile each module once, whatever the environment says of bytecode.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-rest test-slow coverage faults kills endurance test-nojit lint format types check size bench reproduce docs lowest clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

# A stamp per set of extras: installed again only when pyproject.toml changes.
$(VENV)/.stamp-%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'dkfeat needs Python 3.11 or newer; name one: make PYTHON=python3.12 …' >&2; exit 2; }
	@echo "installing dkfeat$(if $(filter base,$*),,[$*]) into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(if $(filter base,$*),,[$*])'
	@touch $@

demo: $(VENV)/.stamp-base  ## featurize, train and compare on real data
	@$(BIN)/dkfeat demo

test: $(VENV)/.stamp-test  ## each behaviour once, the same examples each time: four minutes on two cores
	@$(BIN)/$(PYTEST) $(ARGS)

test-all: $(VENV)/.stamp-test  ## every test: matrices, kills, clusters, pages too; half an hour on two cores
	@$(BIN)/$(PYTEST) $(EVERY) $(ARGS)

test-rest: $(VENV)/.stamp-test  ## what make test leaves out of make test-all
	@$(BIN)/$(PYTEST) -m 'slow and not quick' $(ARGS)

test-slow: $(VENV)/.stamp-test  ## every test, with other random examples each time; SEED=… repeats a run
	@echo "random examples of seed $(SEED); make test-slow SEED=$(SEED) repeats them"
	@$(BIN)/$(PYTEST) $(EVERY) --hypothesis-profile=random --hypothesis-seed=$(SEED) $(ARGS)

coverage: $(VENV)/.stamp-test  ## make test and the lines of dkfeat that it reaches, compiled loops left out; fails below 95 %
	@$(BIN)/$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html --cov-fail-under=95 $(ARGS)

faults: $(VENV)/.stamp-test  ## bad input, kills and failing stores: the tests of the fault catalogue
	@$(BIN)/$(PYTEST) -q -m fault $(ARGS)

kills: $(VENV)/.stamp-test  ## kill runs at every step; each must end with identical bytes
	@$(BIN)/$(PYTEST) -q $(EVERY) -k 'crash__ or driver_killed' tests/faults/processes/test_crash.py tests/faults/processes/test_kills.py $(ARGS)

endurance: $(VENV)/.stamp-test  ## an hour of kills, nights and runs of one client; ARGS='--seed 1' repeats a run
	@$(BIN)/python -m tests.faults.endurance $(ARGS)

test-nojit: $(VENV)/.stamp-test  ## compiled loops run as plain Python, small inputs only
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest tests/compiled tests/test_random_streams.py $(ARGS)

lint: $(VENV)/.stamp-lint  ## ruff, codespell, numpydoc
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python -m numpydoc lint $$(git ls-files 'dkfeat/*.py')
	@$(BIN)/codespell $$(git ls-files '*.py' '*.md' '*.toml' '*.yaml' '*.ipynb')

format: $(VENV)/.stamp-lint  ## rewrite the sources in the house style
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

types: $(VENV)/.stamp-lint $(VENV)/.stamp-base  ## mypy, strict
	@$(BIN)/mypy

check: lint types docs test-all  ## all that CI asks

size:  ## lines of code, modules and lines of tests by package; a test holds the totals
	@$(PYTHON) -m tests.test_size

bench: $(VENV)/.stamp-bench  ## benchmarks against peers in the same run; ARGS=--quick for a short one, --avx2 for AVX2 alone
	@$(BIN)/python benchmarks/run.py $(ARGS)

reproduce: $(VENV)/.stamp-plot  ## the papers' tables and figures into report/; DATA=folder, MODE=full for hours
	@$(BIN)/python jobs/reproduce.py $(if $(DATA),--data '$(DATA)') --mode $(MODE) $(ARGS)

docs: $(VENV)/.stamp-docs  ## the documentation as a site, docs/_build/html/index.html; it runs the notebooks: 13 minutes on two busy cores
	@echo 'building the site; notebooks and examples are run, which takes minutes and prints nothing …'
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html -d docs/_build/doctrees docs docs/_build/html $(ARGS)
	@echo 'docs/_build/html/index.html'

# pip refuses two minima of one name.
.venv-lowest/.stamp: pyproject.toml
	@$(PYTHON) -m venv .venv-lowest
	@echo 'installing the oldest versions into .venv-lowest …'
	@grep -oE '[a-z0-9-]+(\[[a-z0-9]+\])?>=[0-9.]+' pyproject.toml | sed -E 's/\[.*\]//; s/>=/==/' | sort -u > .venv-lowest/minima.txt
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' -c .venv-lowest/minima.txt
	@touch $@

lowest: .venv-lowest/.stamp  ## make test on the oldest versions allowed, the minima of pyproject.toml, in a venv of its own
	@.venv-lowest/bin/$(PYTEST) $(ARGS)

clean:  ## remove the virtual environment, the site and what the demo made
	rm -rf $(VENV) .venv-lowest demo docs/_build docs/reference/generated docs/notebooks docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
