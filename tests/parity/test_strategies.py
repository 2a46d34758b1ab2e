"""Ways to a text against transformers: the several texts of a beam search, and sources in one padded batch."""

import pytest
import torch
import transformers

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)

VOCAB, LIMIT = 60, 12
SEARCHES = [
    dict(num_beams=4),
    dict(num_beams=4, length_penalty=2.0, early_stopping="never"),
    dict(num_beams=3, length_penalty=0.5, early_stopping=True),
]


def saved(model, folder):
    """A small model with weights large enough that its texts differ."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in (each for each in model.parameters() if each.requires_grad):
            parameter.copy_((parameter.ndim == 1) + 0.3 * torch.randn_like(parameter))
    model.eval().save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def continuing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=5,
        pad_token_id=59,
    )
    return saved(transformers.LlamaForCausalLM(config), folder), zoo.load(folder)


@pytest.fixture(scope="module")
def translating(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=80,
        eos_token_id=5,
        pad_token_id=59,
        decoder_start_token_id=59,
        forced_eos_token_id=None,
    )
    return saved(transformers.MarianMTModel(config), folder), zoo.load(folder)


def sources(count):
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    return [torch.randint(6, 58, (length,), generator=generator).tolist() for length in lengths]


def generated(model, batch, **search):
    """The new tokens of each row and their scores; rows are padded on the side that the model's kind has it."""
    given = model.config.is_encoder_decoder
    longest = max(map(len, batch))
    rows = [[59] * (longest - len(ids)) + ids for ids in batch]
    if given:
        rows = [ids + [59] * (longest - len(ids)) for ids in batch]
    ids = torch.tensor(rows)
    made = model.generate(
        ids,
        attention_mask=(ids != 59).long(),
        do_sample=False,
        max_new_tokens=LIMIT,
        output_scores=True,
        return_dict_in_generate=True,
        **search,
    )
    new = made.sequences[:, 1 if given else longest :].tolist()
    ends = [row[: row.index(5) + 1] if 5 in row else row for row in new]
    return ends, made.sequences_scores.tolist()


def settings(search):
    return {"beams" if name == "num_beams" else name: value for name, value in search.items()}


@pytest.mark.parametrize("kind", ["continuing", "translating"])
@pytest.mark.parametrize("search", SEARCHES)
def test_the_several_texts_of_a_search(kind, search, request):
    model, loaded = request.getfixturevalue(kind)
    for ids in sources(3):
        expected, scores = generated(model, [ids], num_return_sequences=3, **search)
        found = zoo.generate(loaded, ids, max_tokens=LIMIT, return_sequences=3, **settings(search))
        assert [candidate["tokens"] for candidate in found.candidates] == expected
        assert [candidate["score"] for candidate in found.candidates] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
def test_sources_in_one_padded_batch(translating, search):
    model, loaded = translating
    batch = sources(6)
    search = search | dict(no_repeat_ngram_size=1)  # so that the texts differ
    expected, _ = generated(model, batch, **search)
    assert [a.tokens for a in zoo.batch(loaded, batch, max_tokens=LIMIT, **settings(search))] == expected
    assert len({tuple(tokens) for tokens in expected}) > 1


def test_a_text_that_outgrows_the_short_factors_of_longrope_goes_on_as_in_transformers(tmp_path):
    """transformers reads the text anew where the long factors begin."""
    torch.manual_seed(3)
    scaling = dict(rope_type="longrope", short_factor=[1.0] * 4, long_factor=[1.5, 3.0, 6.0, 9.0])
    config = transformers.Phi3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=96,
        original_max_position_embeddings=24,
        rope_parameters=dict(scaling, rope_theta=500.0),
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=59,
    )
    model, loaded = saved(transformers.Phi3ForCausalLM(config), tmp_path), zoo.load(tmp_path)
    prompt = list(range(6, 18))
    options = dict(do_sample=False, return_dict_in_generate=True, output_scores=True)
    with torch.no_grad():
        made = model.generate(torch.tensor([prompt]), max_new_tokens=24, **options)
    steps = list(zoo.stream(loaded, prompt, max_tokens=24, temperature=0.0, logprobs=True))
    assert [step.token for step in steps] == made.sequences[0, len(prompt) :].tolist()
    for step, scores in zip(steps, made.scores, strict=True):
        assert step.logprob == pytest.approx(scores.log_softmax(-1)[0, step.token].item(), abs=1e-4)
