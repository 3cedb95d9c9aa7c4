# make demo [VIDEO=/path/to/any.mp4]   set up .venv, then show vehicles being detected over ROS 2
# make test                            the same with torch, then lint, types and tests
# make lint                            lint and types alone
# make clean                           remove .venv and all that was built
# PYTHON=python3.12 makes a new .venv with another Python.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# Where a ROS 2 distribution is sourced, its packages are used and none are installed.
DEMO_EXTRAS := cpu,demo,$(if $(ROS_DISTRO),bags,ros)
TEST_EXTRAS := train,eval,data,spark,factory,dev

# What an environment is made from. It is set up again only when this changes: a pull that changes
# no requirement, or a new time stamp on a file, costs nothing.
KEY = $(shell { cat pyproject.toml setup.py setup.cfg; pwd; echo "$(ROS_DISTRO)"; } | sha256sum | cut -c1-16)

.PHONY: demo test lint clean venv setup-demo setup-test

demo: setup-demo
	@$(BIN)/waysight demo $${VIDEO:+--video "$$VIDEO"} --out out/demo

# Node tests are real processes over real DDS on the cores that everything else uses too: one that
# fails is run once more, and -ra lists it as rerun.
test: setup-test
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest --reruns 1

lint: setup-test
	@$(BIN)/ruff check .
	@$(BIN)/mypy

clean:
	rm -rf .venv out build dist install log *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An environment whose Python is gone or unsupported, or that was moved here, is made anew.
venv:
	@supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; \
	if ! { $(BIN)/python -c "$$supported" && $(BIN)/pip --version; } >/dev/null 2>&1; then \
	  if ! $(PYTHON) -c "$$supported" 2>/dev/null; then \
	    found=$$($(PYTHON) -V 2>/dev/null || echo "no program"); \
	    echo "waysight: error: PYTHON=$(PYTHON) is $$found, expected Python 3.10 to 3.13" \
	      "as in make PYTHON=python3.12" >&2; \
	    exit 2; \
	  fi; \
	  $(PYTHON) -m venv --clear .venv; \
	fi

# The stamp is written last: a set-up that fails or is interrupted leaves none.
setup-demo: venv
	@if [ ! -e .venv/demo-$(KEY) ]; then \
	  echo "Setting up .venv for the demo (some minutes the first time)"; \
	  rm -f .venv/demo-* .venv/test-*; \
	  $(PIP) --editable ".[$(DEMO_EXTRAS)]"; \
	  touch .venv/demo-$(KEY); \
	fi
	@$(BIN)/python -m ros_nodes.setup_ros

# trackeval brings opencv-python beside opencv-python-headless; where its libraries are missing, the
# headless cv2 is put back.
setup-test: setup-demo
	@if [ ! -e .venv/test-$(KEY) ]; then \
	  echo "Setting up .venv for the tests (torch: some more minutes the first time)"; \
	  $(PIP) --editable ".[$(DEMO_EXTRAS),$(TEST_EXTRAS)]"; \
	  $(BIN)/python -c 'import cv2' 2>/dev/null || $(PIP) --force-reinstall --no-deps opencv-python-headless; \
	  touch .venv/test-$(KEY); \
	fi
