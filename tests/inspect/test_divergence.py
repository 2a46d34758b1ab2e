"""How far the predictions of two checkpoints lie apart."""

import mlx.core as mx
import pytest

import zoo
from zoo.checkpoint.convert import convert
from zoo.host.registry import default_registry, isolated
from zoo.inspect.perplexity import SAMPLE, divergence


@pytest.mark.slow
def test_the_divergence_is_that_of_the_two_distributions(tmp_path):
    convert("llama", tmp_path / "four", quantize="4")
    found = divergence("llama", tmp_path / "four")
    models = [zoo.load(source, dtype="float32") for source in ("llama", tmp_path / "four")]
    ids = models[0].tokenizer.encode(SAMPLE)[: models[0].recipe.context]
    p, q = (mx.softmax(model.model(mx.array([ids]))[0], axis=-1) for model in models)
    each = (p * mx.log(p / q)).sum(axis=-1)
    assert found.tokens == len(ids)
    assert found.mean == pytest.approx(each.mean().item(), rel=1e-3, abs=1e-6)
    assert found.worst == pytest.approx(each.max().item(), rel=1e-3, abs=1e-6)
    assert found.worst > found.mean > 1e-4


def test_a_checkpoint_does_not_differ_from_itself(folder):
    """Nor does one without a tokenizer, whose text is a row of ids; the registry given is the one that is asked."""
    path = folder(tokenizer=False)
    seen = []
    registry = isolated()
    found = divergence(path, path, registry=registry, report=lambda done, total: seen.append((done, total)))
    assert found.mean == pytest.approx(0, abs=1e-6) and found.tokens == 64
    assert seen[-1] == (64, 64)
    with pytest.raises(zoo.ZooError, match="unknown architecture 'nowhere'"):
        divergence(path, path, architecture="nowhere", registry=default_registry())
