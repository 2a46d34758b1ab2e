"""A folder of packed weights is held to the suite as any other is: its numbers count as what they stand for."""

import mlx.core as mx
import pytest

import zoo
from zoo.checkpoint.convert import convert
from zoo.testing import checks_of, outcome, subject_of

NAMES = ("parameters_equal_the_recipes", "saved_and_loaded_is_identical", "quantized_and_loaded_is_identical")


@pytest.fixture
def packed(folder, tmp_path):
    """A small model's folder, converted; gives what the suite is held against."""

    def made(name, bits):
        out = tmp_path / "packed"
        convert(folder(name, tokenizer=False), out, quantize=bits, group_size=32)
        return subject_of(zoo.load(out, dtype="float32"))

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        *(("mistral", bits) for bits in ("4", "8", "mxfp4")),
        *((name, "4") for name in ("qwen3-moe", "bert", "marian")),
        *(
            pytest.param(name, bits, marks=pytest.mark.nightly)
            for name in ("qwen3-moe", "bert", "marian")
            for bits in ("8", "mxfp4")
        ),
    ],
)
def test_a_quantized_folder_holds_the_suite(packed, name, bits):
    made = packed(name, bits)
    assert any("scales" in layer for _, layer in made.model.named_modules())
    results = [outcome(check, made) for check in checks_of(made)]
    assert [result for result in results if not result.passed] == []
    assert set(NAMES) <= {result.name for result in results}


def test_a_packed_embedding_may_give_16_bits_in_a_model_of_float32(packed):
    made = packed("mistral", "mxfp4")
    assert outcome(checks_of(made)[0], made).passed


def test_what_the_recipe_does_not_count_is_still_noticed(packed):
    made = packed("mistral", "4")
    made.model.layers[0].extra = mx.zeros((3,))
    found = next(outcome(check, made) for check in checks_of(made) if check.name == NAMES[0])
    assert (
        not found.passed and "the model holds 127,427 parameters, the recipe counts 127,424" in found.message
    )
