# The only runner. `make help` lists what there is; every target works as the first command on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extra arguments for pytest, for example: make test ARGS="-k wasserstein"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install launchers browser demo test test-all check lint types format dist wheel lowest newest docs outputs gallery campaign records reproduce clean

help:  ## list the targets
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/installed  ## create .venv and install everything, pinned by constraints.txt

# torch goes first and alone: a range would let the resolver pick a build with gigabytes of GPU libraries.
$(VENV)/installed: pyproject.toml constraints.txt benchmarks/requirements-laplace.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/requirements-laplace.txt
	@touch $@

launchers: $(VENV)/launchers  ## install what the long checks start processes with: Ray Train and Lightning Fabric (260 MB)

$(VENV)/launchers: $(VENV)/installed
	@echo "Installing Ray Train and Lightning Fabric into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[launchers]'
	@touch $@

browser:  ## install chromium where there is apt-get, for the test that looks at a report (as root)
	@command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; }

demo: install  ## train GWI-net on the paper's toy data and draw demo.png
	@$(BIN)/python examples/demo.py

# Two processes on two cores: threads of their own would only make them wait for each other.
test test-all: export OMP_NUM_THREADS = 1
# Processes that tests start would else compile the package again, each of them.
test test-all: export PYTHONDONTWRITEBYTECODE =

test: install  ## run the tests (about five minutes on two cores)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-all: install launchers  ## run the tests and the long checks
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

dist: install  ## build wheel and sdist into dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist > /dev/null
	@ls -l dist

wheel: dist  ## install them alone, into an environment of their own, and try them (some minutes)
	@$(BIN)/python -m pytest tests/test_wheel.py $(ARGS)

# Not for continuous integration: each makes an environment in build/ (1.5 GB) and runs a choice of tests. torch is the one that
# constraints.txt pins, in both. VERSIONS_TESTS says what is run.
VERSIONS_TESTS ?= tests/core tests/tables tests/plots tests/onnx tests/estimators tests/report tests/cli tests/test_botorch.py tests/test_extras.py
build/%/installed: pyproject.toml constraints.txt tools/lowest.py
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" packaging
	@grep '^torch==' constraints.txt > $(@D)/versions.txt
	@if [ $* = lowest ]; then $(@D)/bin/python -m tools.lowest all test frames >> $(@D)/versions.txt; fi
	@$(@D)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --constraint $(@D)/versions.txt --editable '.[all,test,frames]' pooch requests psutil
	@touch $@

lowest newest: %: build/%/installed  ## test with the lowest versions that pyproject.toml declares (newest: with the newest)
	@$(<D)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(VERSIONS_TESTS) $(ARGS)

lint: install  ## ruff, and is everything formatted?
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: install  ## mypy
	@$(BIN)/mypy

check: lint types test  ## all that continuous integration runs

format: install  ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: install  ## build the documentation into site/
	@$(BIN)/zensical build --clean

outputs: install  ## run the Python of the pages again and write what it prints under it (minutes)
	@$(BIN)/python -m tools.outputs $(PAGES)

# Some of them: make gallery SCRIPTS=examples/gallery/07_counts.py
SCRIPTS ?=
gallery: install  ## run the notebooks of examples/gallery again and write their pages (minutes; GWI_DATA has the tables)
	@$(BIN)/python -m tools.gallery $(SCRIPTS)

# Kinds and options, for example: make campaign OPTIONS="forged --count 45000"
campaign: install  ## do thousands of faults on purpose: hostile tables, odd files, kills, ... (hours; goes on where it was stopped)
	@nice -n 19 $(BIN)/python -m benchmarks.campaign $(OPTIONS)

records: install  ## measure again every number and figure that the documentation shows (some hours)
	@for study in hostile robust_max wasserstein_convergence covariance coverage context "context points" \
		hyper_priors estimator_coverage choosing_by_test "ablation --within" ablation bayesian_optimisation plan_costs speed cli_speed diagnostics plot_examples classification sets \
		feature_choice scale kills hosts play_redraw; do \
		echo "benchmarks.studies.$$study"; $(BIN)/python -m benchmarks.studies.$$study || exit 1; done
	@$(BIN)/python -m benchmarks.figures
	@$(BIN)/python -m benchmarks.render

# A table of the paper with options of its script, make reproduce TABLE=uci OPTIONS="--sets boston yacht --splits 0", or the
# figures: make reproduce FIGURES=all, or some of them, make reproduce FIGURES="spectrum shrinkage" OPTIONS=--redraw
TABLE ?= uci
FIGURES ?=
OPTIONS ?=
reproduce: install  ## redo TABLE=uci or images with all peers (hours; goes on where it was stopped), or FIGURES=all (minutes)
ifeq ($(strip $(FIGURES)),)
	@test -n "$(filter uci images,$(TABLE))" || { echo "There is no table '$(TABLE)'; the tables are uci and images."; exit 2; }
	@$(BIN)/python -W ignore -m benchmarks.tables.$(TABLE) $(OPTIONS)
else
	@$(BIN)/python -W ignore -m benchmarks.figures $(if $(filter all,$(FIGURES)),,--only $(FIGURES)) $(OPTIONS)
	@$(BIN)/python -m benchmarks.render
endif

clean:  ## remove the virtual environment and what was built
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache
