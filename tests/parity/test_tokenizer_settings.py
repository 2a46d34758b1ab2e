"""`tokenizer.json` beside other settings: ids are those of transformers, whichever of the files says what."""

import warnings

import pytest
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from tests.helpers.tokenizer_kinds import load_tokenizer
from tests.helpers.tokenizer_settings import KINDS, TEXTS, Draw, write
from zoo.architecture import Architecture
from zoo.host.registry import default_registry
from zoo.tokenizer.classes import AS_WRITTEN, CLASS_OF_MODEL_TYPE

PYTHON_TOKENIZERS = {"marian", "m2m_100"}  # which have no tokenizer.json


@pytest.mark.parametrize("name", KINDS)
def test_ids_are_those_of_the_reference_whatever_the_two_files_say(tmp_path, name):
    for seed in range(200):
        files = Draw(f"{name} {seed}").files(name)
        write(tmp_path, files)
        reference = AutoTokenizer.from_pretrained(tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer = load_tokenizer(tmp_path)
        for text in TEXTS:
            for special in (True, False):
                expected = reference.encode(text, add_special_tokens=special)
                assert tokenizer.encode(text, special) == expected, (seed, text, special)
            shown = reference.decode(expected, skip_special_tokens=True)
            assert tokenizer.decode(expected) == shown, (seed, text)


def test_the_class_of_a_model_type_is_that_of_the_reference():
    own = {
        type
        for entry in default_registry().table(Architecture).listed().values()
        for type in entry.model_types
    }
    plain = ("TokenizersBackend", None)
    for model_type in own - PYTHON_TOKENIZERS:
        registered = TOKENIZER_MAPPING_NAMES.get(model_type)
        if registered == "MistralCommonBackend":  # which reads tekken.json, where it is installed
            registered = "TokenizersBackend"
        assert (model_type in AS_WRITTEN.split()) == (registered == "TokenizersBackend"), model_type
        assert CLASS_OF_MODEL_TYPE.get(model_type) == (None if registered in plain else registered), (
            model_type
        )
