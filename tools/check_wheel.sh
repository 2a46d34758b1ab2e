#!/bin/sh
# Build the wheel, install it into a fresh environment, and use it from an empty folder: what an editable
# install would hide (a plugin, a pocket checkpoint or a template left out) fails here.
set -eu
python=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m build --wheel --outdir "$folder" . >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-compile "$folder"/*.whl pytest
cp -r tests "$folder/tests"
"$python" tools/tutorial_files.py "$folder"
cd "$folder"
PATH="$folder/venv/bin:$PATH"
export OPENBLAS_NUM_THREADS=1  # small models gain nothing from more, and other checks run beside this one
zoo plugins
zoo run llama "The capital city of China is"
pytest -q --import-mode=importlib -p no:cacheprovider -o pythonpath=. tests/test_installed.py

# A plugin of each kind, from nothing to its use. The first is installed as its README says. The others are built by one copy of the
# package that builds them, where pip would install a copy for each.
export ZOO_STRICT=1
zoo new my-arch --base llama
pip install --quiet --editable ./my-arch
others=
for new in "my-encoder --kind encoder" "my-translator --kind encoder-decoder" "my-block --kind block" "my-strategy --kind strategy" "my-command --kind command"; do
    zoo new $new
    others="$others --editable ./${new%% *}"
done
pip install --quiet hatchling editables
pip install --quiet --no-build-isolation $others
for name in my-arch my-encoder my-translator my-block my-strategy my-command; do
    pytest -q "$name"
done
zoo plugins
zoo run my-arch "The capital city of China is" | grep Beijing
zoo run llama "The capital city of China is" --strategy my-strategy | grep Beijing
zoo my-command my-arch llama
zoo convert llama packed -q 4 | grep "4\.[0-9]* bits a weight"
zoo run packed "The capital city of China is" | grep Beijing
pytest -q --zoo-arch my-arch my-arch -k "parameters or saved"
zoo train my-arch --steps 20 --batch 4 --out trained
zoo run trained "The capital city of China is" --max-tokens 20
zoo test trained --reference trained

# The tutorial's plugin.
pip install --quiet --editable ./zoo-gptj
zoo test gptj
