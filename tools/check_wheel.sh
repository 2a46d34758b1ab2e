#!/bin/sh
# Build the wheel, install it into a fresh environment, and use it from an empty folder: what an editable
# install would hide (a plugin or a pocket checkpoint left out) fails here.
set -eu
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m build --wheel --outdir "$folder" . >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "$folder"/*.whl pytest
cp -r tests "$folder/tests"
cd "$folder"
venv/bin/zoo plugins
venv/bin/zoo run llama "The capital city of China is"
venv/bin/pytest -q --import-mode=importlib -p no:cacheprovider tests/test_installed.py tests/test_pockets.py
