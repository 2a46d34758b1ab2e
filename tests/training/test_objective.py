"""Objectives: what is hidden, what is asked for, and how it is weighed."""

from itertools import islice
from types import SimpleNamespace

import mlx.core as mx
import pytest

from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.training.loop import TrainingSettings
from zoo.training.loss import IGNORED, cross_entropy
from zoo.training.masked_lm import masked_lm
from zoo.training.objective import alike, objective_of, padded
from zoo.training.run import settings_of, train_folder
from zoo_corpora.atlas import documents as atlas
from zoo_llada.objective import masked_diffusion, masked_diffusion_loss
from zoo_prefix.objective import prefix_lm, prefix_lm_validation

END, MASK, VOCAB = 0, 2, 60
SETTINGS = TrainingSettings(batch=16, length=32)


def test_the_loss_of_halves_is_that_of_floats():
    logits = mx.array([[[0.0, 30.0], [2.0, 1.0]]])
    targets = mx.array([[0, 0]])  # the first has a probability below what float16 can hold
    found, expected = (
        cross_entropy(logits.astype(dtype), targets).item() for dtype in (mx.float16, mx.float32)
    )
    assert found == expected and expected == pytest.approx((30 + 0.3133) / 2, rel=1e-4)


class Words:
    """A tokenizer of one id a letter: 5 and on."""

    vocab_size = VOCAB

    def __init__(self):
        self.special_tokens = {"mask_token": "[MASK]"}

    def encode(self, text, special_tokens=True):
        return [5 + (ord(letter) - ord("a")) for letter in text if letter != " "]

    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(0x4E00 + id) for id in ids)  # words of one letter, as Chinese ones

    def id(self, token):
        return {"<|endoftext|>": END, "[MASK]": MASK}.get(token)


def texts():
    while True:
        yield from ("abcdefghij", "klmno", "pqrstuvwxyzpqrstuvwxyz")


def taken(make, count=60, settings=SETTINGS):
    return list(islice(make(texts(), Words(), settings), count))


def test_bert_is_asked_for_fifteen_percent_of_the_words_hidden_in_its_three_ways():
    asked = kept = masked = total = 0
    for inputs, targets in taken(masked_lm):
        chosen = targets != IGNORED
        asked += chosen.sum().item()
        masked += (chosen & (inputs == MASK)).sum().item()
        kept += (chosen & (inputs == targets)).sum().item()
        total += (chosen | (inputs != END)).sum().item()
        assert not ((targets == END) | (targets == MASK)).any().item()
    assert asked / total == pytest.approx(0.15, abs=0.01)
    assert masked / asked == pytest.approx(0.80 + 0.10 / VOCAB, abs=0.03)
    assert kept / asked == pytest.approx(0.10 + 0.10 / VOCAB, abs=0.02)


def test_bert_is_asked_for_half_the_names_and_never_for_half_of_one():
    told = {"names": ["abcd", "lmn"], "answers": ["lmn"]}
    asked, others = {"abcd": [0, 0], "lmn": [0, 0]}, 0
    for inputs, targets in islice(masked_lm(texts(), Words(), SETTINGS, **told), 100):
        plain = mx.where(targets == IGNORED, inputs, targets).tolist()
        for row, shown, targeted in zip(plain, inputs.tolist(), targets.tolist(), strict=True):
            for name, counts in asked.items():
                ids = Words().encode(name)
                starts = [place for place in range(len(row)) if row[place : place + len(ids)] == ids]
                for start in starts:
                    place = slice(start, start + len(ids))
                    assert targeted[place] in (ids, [IGNORED] * len(ids))
                    masks = [id == MASK for id in shown[place]]
                    others += any(masks) and not all(
                        masks
                    )  # a mask is one of the words that stand in for others
                    counts[0] += targeted[place] == ids
                    counts[1] += 1
    assert others < 0.02 * sum(seen for _, seen in asked.values())
    for hidden, seen in asked.values():
        assert hidden / seen == pytest.approx(0.5, abs=0.05)


def test_what_is_not_asked_for_is_left_alone():
    plain = list(islice(alike(texts(), Words(), SETTINGS, closed=False), 20))
    for (inputs, targets), ids in zip(taken(masked_lm, 20), plain, strict=True):
        assert mx.array_equal(mx.where(targets == IGNORED, inputs, targets), ids)


def test_a_row_is_one_document_among_others_of_its_length():
    found = list(alike((text for text, _ in zip(texts(), range(1000), strict=False)), Words(), SETTINGS))
    rows = [row for batch in found for row in batch.tolist()]
    documents = {tuple(Words().encode(text)) for text, _ in zip(texts(), range(3), strict=False)}
    for row in rows:
        document = tuple(id for id in row if id != END)
        assert document in documents and row[: len(document)] == list(document)
        assert row[len(document) :] == [END] * (len(row) - len(document)) and row[-1] == END
    assert len(rows) == 1000
    assert all(batch.size <= SETTINGS.batch * SETTINGS.length for batch in found)
    padding = sum(len(row) for row in rows) - sum(len([id for id in row if id != END]) + 1 for row in rows)
    assert padding / sum(map(len, rows)) < 0.05


def test_a_long_document_is_cut_and_all_come_when_the_stream_ends_with_a_pool():
    one = list(alike(iter(["a" * 100] * 512), Words(), SETTINGS))
    assert {batch.shape[1] for batch in one} == {32}
    assert sum(batch.shape[0] for batch in one) == 512


def test_a_diffusions_rows_have_every_number_of_masks_and_its_inverse_as_weight():
    shares, expected = [], []
    for inputs, targets, weights in taken(masked_diffusion):
        masked = inputs == MASK
        assert mx.array_equal(inputs == targets, ~masked & (targets != IGNORED))
        assert mx.array_equal(weights > 0, masked)
        assert not (masked & (targets == IGNORED)).any().item()
        for hidden, asked, weighed in zip(masked, targets, weights, strict=True):
            count, length = hidden.sum().item(), (asked != IGNORED).sum().item()
            assert count >= 1 and weighed.max().item() == pytest.approx(length / count)
            shares.append(count / length)
            expected.append((length + 1) / (2 * length))
    assert min(shares) < 0.1 and max(shares) == 1
    assert sum(shares) / len(shares) == pytest.approx(sum(expected) / len(expected), abs=0.03)


def test_a_prompt_is_left_clean_and_ends_where_an_answer_begins():
    told = {"names": ["lmn", "uvw"], "answers": ["lmn", "uvw"]}
    starts = {"klmno": set(), "pqrstuvwxyzpqrstuvwxyz": set()}
    prompts = 0
    for inputs, targets, weights in islice(masked_diffusion(texts(), Words(), SETTINGS, **told), 100):
        for shown, asked, weighed in zip(inputs.tolist(), targets.tolist(), weights.tolist(), strict=True):
            start = sum(target == IGNORED for target in asked)
            prompts += start > 0
            assert asked[:start] == [IGNORED] * start and IGNORED not in asked[start:]
            assert MASK not in shown[:start] and not any(weighed[:start])
            assert all(one in (MASK, two) for one, two in zip(shown[start:], asked[start:], strict=True))
            text = "".join(chr(ord("a") + id - 5) for id in shown[:start] + asked[start:] if id >= 5)
            starts.get(text, set()).add(start)
            for place in range(start, len(asked) - 2):  # an answer is masked whole
                if asked[place : place + 3] == Words().encode("uvw"):
                    assert len({id == MASK for id in shown[place : place + 3]}) == 1
    assert starts == {"klmno": {0, 1}, "pqrstuvwxyzpqrstuvwxyz": {0, 5}}
    assert prompts > 0


def test_a_quarter_of_a_diffusions_rows_have_no_prompt():
    rows = [targets for _, targets, _ in taken(masked_diffusion, 100) for targets in targets.tolist()]
    assert sum(row[0] != IGNORED for row in rows) / len(rows) == pytest.approx(0.25, abs=0.05)


def test_a_diffusions_texts_go_on_with_end_tokens_that_it_is_asked_for():
    extra = []
    for _, targets, weights in taken(masked_diffusion, 200):
        for row in targets.tolist():
            assert row[-1] == END
            extra.append(len(row) - len([id for id in row if id not in (END, IGNORED)]))
        ends = (targets == END) & (weights > 0)
        assert ends.any().item()
    assert max(extra) > 40


@pytest.mark.slow
def test_the_diffusion_loss_is_unbiased():
    """Each target's weight is 1 on average, so that a constant loss a token is its own estimate."""

    class Uniform:
        def backbone(self, tokens):
            return mx.zeros((*tokens.shape, 3))

        def head(self, hidden):
            return mx.zeros((*hidden.shape[:2], VOCAB))

    found = [masked_diffusion_loss(Uniform(), *batch).item() for batch in taken(masked_diffusion, 300)]
    assert sum(found) / len(found) == pytest.approx(mx.log(mx.array(float(VOCAB))).item(), rel=0.05)


@pytest.mark.parametrize("name", ["bert", "llada"])
def test_logits_of_the_masks_alone_give_the_loss_of_all(name):
    from zoo.testing import subject
    from zoo.training.loss import token_losses

    model = subject(name).model
    objective = objective_of(default_registry().architecture(name))
    inputs = mx.array([[5, 2, 7, 2], [2, 9, 10, 11]])
    targets = mx.array([[IGNORED, 6, IGNORED, 8], [8, IGNORED, IGNORED, IGNORED]])
    losses = token_losses(model(inputs), targets)
    if name == "bert":
        whole = losses.sum() / 3
        assert objective.loss(model, inputs, targets).item() == pytest.approx(whole.item(), rel=1e-4)
    else:
        weights = mx.where(targets != IGNORED, mx.array([[2.0], [3.0]]), 0.0)
        whole = (losses * weights).sum() / 3
        assert objective.loss(model, inputs, targets, weights).item() == pytest.approx(whole.item(), rel=1e-4)


def test_an_answer_is_asked_for_from_the_prompts_end_on():
    seen = set()
    for inputs, targets, prefix in taken(prefix_lm):
        assert prefix.min().item() >= 1 and prefix.max().item() <= 16
        seen |= set(prefix.tolist())
        for row, end in enumerate(prefix.tolist()):
            asked = (targets[row] != IGNORED).tolist()
            assert asked == [place >= end - 1 for place in range(32)]
            assert mx.array_equal(targets[row, end - 1 : -1], inputs[row, end:])
    assert {1, 16} <= seen


def test_a_document_is_measured_on_its_second_half():
    inputs, targets, prefix = next(prefix_lm_validation(iter(["abcdefgh", "abc"]), Words(), SETTINGS))
    assert prefix.tolist() == [1, 4]  # the shorter document first
    assert [place for place, target in enumerate(targets[0].tolist()) if target != IGNORED] == [0, 1, 2]
    assert [place for place, target in enumerate(targets[1].tolist()) if target != IGNORED] == [3, 4, 5, 6, 7]
    assert inputs.shape == targets.shape


def test_documents_are_measured_beside_others_of_like_length():
    texts = [letter * count for count in (30, 2, 28, 3) for letter in "ab" * 32]
    found = list(padded(iter(texts), Words().encode, batch=64, end=0))
    assert [inputs.shape for inputs, _ in found] == [(64, 2), (64, 3), (64, 28), (64, 30)]
    assert sum(int((targets != IGNORED).sum().item()) for _, targets in found) == sum(map(len, texts))


@pytest.mark.parametrize("make", [prefix_lm, masked_lm, masked_diffusion])
def test_the_seed_makes_the_batches(make):
    def first(seed):
        return taken(make, 3, TrainingSettings(batch=4, length=16, seed=seed))

    for one, two in zip(first(1), first(1), strict=True):
        assert all(mx.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert any(
        a.shape != b.shape or not mx.array_equal(a, b)
        for one, two in zip(first(1), first(2), strict=True)
        for a, b in zip(one[1:], two[1:], strict=True)
    )


@pytest.mark.parametrize("name", ["bert", "llada"])
def test_a_batch_in_which_nothing_is_hidden_costs_nothing(name):
    from zoo.testing import subject

    model, tokens = subject(name).model, mx.array([[5, 6, 7]])
    told = (mx.full((1, 3), IGNORED),) if name == "bert" else (tokens, mx.zeros((1, 3)))
    assert objective_of(default_registry().architecture(name)).loss(model, tokens, *told).item() == 0


def test_ignored_targets_cost_nothing():
    logits = mx.random.normal((2, 3, 7), key=mx.random.key(0))
    targets = mx.array([[1, IGNORED, 2], [IGNORED, IGNORED, 3]])
    chosen = mx.stack([logits[0, 0], logits[0, 2], logits[1, 2]])[None]
    assert cross_entropy(logits, targets).item() == pytest.approx(
        cross_entropy(chosen, mx.array([[1, 2, 3]])).item(), rel=1e-5
    )


def test_the_objective_follows_task_and_causality():
    known = default_registry()
    kinds = {name: objective_of(known.architecture(name)).training for name in ("bert", "llada", "prefix-lm")}
    assert kinds == {"bert": masked_lm, "llada": masked_diffusion, "prefix-lm": prefix_lm}
    nothing = SimpleNamespace(name="x", task="encode", causality="full")
    with pytest.raises(ZooError, match="no objective trains x: encode"):
        objective_of(nothing)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llada", "prefix-lm"])
def test_a_few_steps_write_a_folder_that_loads(name, tmp_path, tokenizer_folder, monkeypatch):
    import zoo

    monkeypatch.setattr(
        "zoo_corpora.atlas.documents",
        lambda split, seed, **more: islice(atlas(split, seed, **more), 100 + 900 * (split == "train")),
    )
    record = train_folder(
        name, tmp_path / "out", TrainingSettings(steps=2, batch=2, length=16), tokenizer=tokenizer_folder
    )
    assert len(record.validation) == 1
    alone = name != "prefix-lm"
    assert record.documents == ("sentences" if alone else "documents")
    assert record.tokenizer["names"] == 0  # of one that was given
    assert record.validation[0][1] == pytest.approx(6.0, abs=0.8)  # about the log of 400 tokens
    assert zoo.load(tmp_path / "out").architecture.name == name


@pytest.mark.parametrize("name", ["bert", "llada"])
def test_those_that_see_both_ways_learn_from_sentences_in_small_batches(name):
    settings = settings_of(name, {"seed": 3})
    assert (
        settings.batch < TrainingSettings().batch
        and settings.rate < TrainingSettings().rate
        and settings.seed == 3
    )
    assert settings_of(name, {"rate": 0.5, "batch": 99}).rate == 0.5
    assert objective_of(default_registry().architecture(name)).sentences


def test_what_hides_most_of_its_text_is_trained_for_longer():
    assert settings_of("bert", {}).steps > settings_of("llama", {}).steps == TrainingSettings().steps
    assert settings_of("bert", {"steps": 3}).steps == 3
    with pytest.raises(ZooError, match="nothing-like-it"):
        settings_of("nothing-like-it", {})
