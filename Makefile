# Sets itself up: needs Python 3.11 to 3.14, make, and a package index. Nothing is installed
# outside .venv. torch of the default index may come with CUDA; for the small CPU build:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test

SUPPORTED := (3, 11) <= sys.version_info[:2] <= (3, 14)
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not $(SUPPORTED))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all device-tests lint parity-cuda bench bench-kernels bench-planner docs docs-figures renew wheels clean

demo: $(VENV)/demo.stamp
	PATH="$(abspath $(BIN)):$$PATH" sh examples/digits/demo.sh

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n auto --dist worksteal
	$(BIN)/python -m pytest device_tests

# What is not installed is skipped, with the reason. On Debian:
EMULATED := gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-riscv64-linux-gnu gcc-arm-none-eabi \
	qemu-user-static qemu-system-arm musl-tools
device-tests: $(VENV)/test.stamp
	@echo "Other processors are emulated: apt install $(EMULATED)"
	@echo "Pythons for them: $(BIN)/python -m device_tests.python_root aarch64 armv7 riscv64"
	$(BIN)/python -m pytest device_tests -rs

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# For a machine with a GPU and a torch that finds it; elsewhere it says why nothing was run.
parity-cuda: $(VENV)/test.stamp
	$(BIN)/python -m device_tests.parity_report --device cuda --jobs $$(nproc)

bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.step

# Every kernel family beside the limit of this machine and beside torch: docs/kernels.md.
bench-kernels: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.kernels --avx2 --write

bench-planner: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.planner_table

# The site, in build/site; a link that leads nowhere is an error.
docs: $(VENV)/docs.stamp
	$(BIN)/python -m tools.site_pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# All tables of docs/ and README, an hour; FIGURES="commands depth" makes some of them.
docs-figures: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.docs $(FIGURES)

# Measured tables that are older than their code, the cheapest first; what is left is printed.
HOURS := 2
renew: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.renew --hours $(HOURS)

# dist/: edgetrain, and edgetrain-runtime for devices that only run Programs.
wheels: $(VENV)/demo.stamp
	$(BIN)/python -m tools.wheels dist

clean:
	rm -rf $(VENV)

$(BIN)/python:
	@'$(or $(PYTHON),false)' -c 'import sys; sys.exit(not $(SUPPORTED))' 2>/dev/null || { \
		echo "edgetrain runs on Python 3.11 to 3.14; found $$('$(or $(PYTHON),python3)' -V 2>&1 || \
		echo none). Run: make PYTHON=/path/to/python3.14" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	touch $@

$(VENV)/docs.stamp: pyproject.toml $(VENV)/demo.stamp
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	touch $@

# torch first and alone: another package's wish must not bring another torch.
$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e '.[test]'
	-$(BIN)/python -m pip install --quiet --retries 1 -e '.[test,flower]' || \
		echo "Flower cannot be installed here: tests of federations are skipped."
	touch $@ $(VENV)/demo.stamp
