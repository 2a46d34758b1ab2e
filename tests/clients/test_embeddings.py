"""OpenAI's Python library as a client of Embeddings."""

import mlx.core as mx
import openai
import pytest

import zoo

TEXTS = ["A river.", "The sea is deep."]


@pytest.fixture(scope="module")
def embed(pockets):
    with openai.OpenAI(base_url=pockets.v1, api_key="none", max_retries=0) as client:
        yield lambda input, **settings: client.embeddings.create(model="bert", input=input, **settings)


@pytest.fixture(scope="module")
def loaded():
    return zoo.load("bert")


def test_vectors_are_those_of_zoo_embed_in_the_order_of_the_texts(embed, loaded):
    answer, expected = embed(TEXTS), zoo.embed(loaded, TEXTS).tolist()  # the library asks for base64
    assert [item.index for item in answer.data] == [0, 1]
    for item, vector in zip(answer.data, expected, strict=True):
        assert item.embedding == pytest.approx(vector, abs=1e-4)
    assert answer.usage.prompt_tokens == sum(len(loaded.tokenizer.encode(text)) for text in TEXTS)


def test_numbers_and_base64_are_the_same_vector(embed):
    numbers, packed = (embed(TEXTS[0], encoding_format=how).data[0].embedding for how in ("float", "base64"))
    default = embed(TEXTS[0]).data[0].embedding
    assert isinstance(packed, str) and default == pytest.approx(numbers, abs=1e-6)


def test_a_list_of_ids_is_the_text_that_it_encodes(embed, loaded):
    ids = loaded.tokenizer.encode(TEXTS[0])
    expected = embed(TEXTS[0]).data[0].embedding
    for given in (ids, [ids]):
        assert embed(given).data[0].embedding == pytest.approx(expected, abs=1e-4)


def test_dimensions_cut_a_vector_and_scale_it_to_length_one(embed):
    cut = mx.array(embed(TEXTS[0]).data[0].embedding)[:4]
    expected = (cut / mx.linalg.norm(cut)).tolist()
    assert embed(TEXTS[0], dimensions=4).data[0].embedding == pytest.approx(expected, abs=1e-4)
    with pytest.raises(openai.BadRequestError) as caught:
        embed(TEXTS[0], dimensions=10**6)
    assert caught.value.param == "dimensions"
