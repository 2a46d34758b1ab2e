"""What the probes of each family note, recomputed from other values of the same run."""

import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers.closeness import close
from tests.helpers.parameters import ordinary
from zoo.errors import PromptError
from zoo.inspect.tracing.probe import Recorder, hooked

PROMPT = "The capital city of China is"
EMBEDDED = (
    *(
        "bert",
        "deepseek-v3",
        "gemma2",
        "gpt-oss",
        "gpt2",
        "gpt2-postln",
        "gru",
        "llada",
        "llama",
        "lstm",
        "mamba",
    ),
    *("mixtral", "prefix-lm", "qwen3", "qwen3-moe", "transformer"),
)


@pytest.fixture(scope="module")
def traced():
    """A function from a name to its traced run, each made once."""
    known = {}

    def make(name):
        if name not in known:
            prompt = "The capital city of China is [MASK] ." if name == "bert" else PROMPT
            known[name] = zoo.trace(zoo.load(name), prompt)
        return known[name]

    return make


@pytest.mark.parametrize("name", ordinary(EMBEDDED, "bert", "deepseek-v3", "gemma2", "transformer"))
def test_every_value_has_axes_and_a_meaning(traced, name):
    trace = traced(name)
    for address in trace:
        about = trace.about(address)
        assert about.axes and about.summary, address
        assert trace[address].ndim == len(about.axes.split()) - 1, address
        assert not about.item_axis or about.item_axis in about.axes.split()


def test_latent_attention_has_one_pattern_in_either_order(traced):
    loaded = traced("deepseek-v3").loaded
    mixer, ids = loaded.model.layers[1].mixer, mx.array([[5 + i for i in range(12)]])
    seen = {}
    for order in (True, False):
        recorder = Recorder()
        mixer.absorbs = lambda *sizes, order=order: order
        try:
            with hooked(loaded.model, recorder, loaded.registry):
                loaded.model(ids)
        finally:
            del mixer.absorbs
        seen[order] = recorder.passes[0].values
    at = "layers.1.mixer."
    absorbed, expanded = seen[True], seen[False]
    assert close(absorbed[at + "pattern"], expanded[at + "pattern"], atol=1e-5)
    assert close(np.array(expanded[at + "pattern"]).sum(-1), 1, atol=1e-5)
    expected = expanded[at + "pattern"] @ mixer.value_up(expanded[at + "latents"])
    for values in seen.values():
        assert close(values[at + "heads"], expected, atol=1e-4)


@pytest.mark.parametrize("name", ["mixtral", "deepseek-v3", "qwen3-moe"])
def test_gates_are_the_weights_by_expert(traced, name):
    trace = traced(name)
    router = "layers.1.feedforward.router."
    gates, indices, weights = (trace[router + value] for value in ("gates", "indices", "weights"))
    assert np.array_equal(np.take_along_axis(gates, indices.astype(int), axis=-1), weights)
    assert (np.count_nonzero(gates, axis=-1) <= indices.shape[-1]).all()
    experts = trace["layers.1.feedforward.experts"]
    routed = (experts * weights[..., None]).sum(axis=-2)
    if "layers.1.feedforward.shared" in trace:
        routed = routed + trace["layers.1.feedforward.shared"]
    assert close(routed, trace["layers.1.feedforward"], atol=1e-4)


def test_router_tells_the_probability_of_every_expert(traced):
    trace = traced("mixtral")
    probabilities = trace["layers.0.feedforward.router.probabilities"]
    assert close(probabilities.sum(axis=-1), 1, atol=1e-5)
    chosen = np.sort(trace["layers.0.feedforward.router.indices"], axis=-1)
    best = np.sort(np.argsort(-probabilities, axis=-1)[:, : chosen.shape[-1]], axis=-1)
    assert np.array_equal(chosen, best)


def test_expert_set_to_zero_leaves_the_weights_of_the_others(traced):
    plain = traced("mixtral")
    with zoo.intervene(plain.loaded, {"layers.0.feedforward.router.expert.1": 0}):
        changed = zoo.trace(plain.loaded, PROMPT, max_tokens=1)
    length = len(plain.prompt)
    gates, before = (t["layers.0.feedforward.router.gates"][:length] for t in (changed, plain))
    assert before[:, 1].any()  # it was chosen for some token
    others = [i for i in range(gates.shape[-1]) if i != 1]
    assert np.array_equal(gates[:, others], before[:, others])
    without = (
        plain["layers.0.feedforward.experts"][:length]
        * np.where(
            plain["layers.0.feedforward.router.indices"][:length] == 1,
            0,
            plain["layers.0.feedforward.router.weights"][:length],
        )[..., None]
    )
    assert close(changed["layers.0.feedforward"][:length], without.sum(axis=-2), atol=1e-5)


def test_what_nothing_is_computed_from_cannot_be_changed(traced):
    loaded = traced("mixtral").loaded
    with (
        pytest.raises(PromptError, match=r"intervene in layers\.0\.feedforward\.router\.scores"),
        zoo.intervene(loaded, {"layers.0.feedforward.router.probabilities": 0}),
    ):
        pass


def test_sink_takes_what_the_tokens_leave(traced):
    trace = traced("gpt-oss")
    pattern, sink = trace["layers.1.mixer.pattern"], trace["layers.1.mixer.sink"]
    assert close(pattern.sum(axis=-1) + sink, 1, atol=1e-5)
    assert sink.min() > 0


def test_residual_stream_between_mixer_and_feedforward(traced):
    trace = traced("gpt2")
    middle = trace["layers.2.resid_mid"]
    assert close(trace["layers.1"] + trace["layers.2.mixer"], middle, atol=1e-5)
    assert close(middle + trace["layers.2.feedforward"], trace["layers.2"], atol=1e-5)


def test_embedding_is_the_sum_of_vectors_and_positions(traced):
    trace = traced("gpt2")
    total = trace["embedding.vectors"] + trace["embedding.positions"]
    assert close(total, trace["embedding"], atol=1e-6)
    assert trace["embedding.positions"].shape == trace["embedding"].shape


def test_lstm_gates_make_cell_and_hidden_state(traced):
    trace = traced("lstm")
    at = "layers.1.mixer."
    i, f, g, o = (trace[at + name] for name in ("input_gate", "forget_gate", "candidate", "output_gate"))
    cell = trace[at + "cell"]
    before = np.concatenate([np.zeros_like(cell[:1]), cell[:-1]])
    assert close(f * before + i * g, cell, atol=1e-5)
    assert close(o * np.tanh(cell), trace[at + "hidden"], atol=1e-5)
    assert np.array_equal(trace[at + "hidden"], trace["layers.1"])


def test_gru_gates_make_the_hidden_state(traced):
    trace = traced("gru")
    z, n, h = (trace[f"layers.0.mixer.{name}"] for name in ("update_gate", "candidate", "hidden"))
    before = np.concatenate([np.zeros_like(h[:1]), h[:-1]])
    assert close((1 - z) * n + z * before, h, atol=1e-5)


def test_closed_gate_keeps_a_cell_empty(traced):
    loaded = traced("lstm").loaded
    with zoo.intervene(loaded, {"layers.0.mixer.input_gate": 0}):
        trace = zoo.trace(loaded, PROMPT, max_tokens=2)
    assert not trace["layers.0.mixer.cell"].any() and not trace["layers.0"].any()


def test_state_spaces_state_follows_its_recurrence(traced):
    trace = traced("mamba")
    mixer = trace.loaded.model.layers[2].mixer
    dt, B, C, x, norm = (
        trace[f"layers.2.mixer.{name}"] for name in ("dt", "B", "C", "convolved", "state_norm")
    )
    A, h = -np.exp(np.array(mixer.A_log)), 0.0
    for t in range(len(dt)):
        h = np.exp(dt[t] * A) * h + B[t][:, None] * (dt[t] * x[t])
        assert norm[t] == pytest.approx(np.linalg.norm(h), rel=1e-3)
        read = C[t] @ h + np.array(mixer.D) * x[t]
        assert close(read, trace["layers.2.mixer.scanned"][t], atol=1e-3)


def test_cross_attention_looks_at_the_source(traced):
    trace = traced("transformer")
    pattern = trace["decoder.layers.0.cross.pattern"]
    source = next(p for p in trace.passes if p.kind == "encode")
    written = sum(len(p.tokens) for p in trace.passes if p.kind == "decode")
    assert pattern.shape[1:] == (written, len(source.tokens))
    assert close(pattern.sum(axis=-1), 1, atol=1e-5)
    assert trace["encoder.embedding.vectors"].shape[0] == len(source.tokens)
    assert trace["decoder.embedding.vectors"].shape[0] == written
    assert trace.choices(3)[0].token == trace.tokens[0]


def test_windows_columns_are_positions_of_the_text():
    loaded = zoo.load("gpt-oss")
    window = loaded.recipe.layers[0].mixer.window
    ids = [5 + i % 50 for i in range(window + 5)]
    trace = zoo.trace(loaded, ids, max_tokens=4)
    pattern = trace["layers.0.mixer.pattern"]
    rows, columns = np.arange(pattern.shape[1])[:, None], np.arange(pattern.shape[2])[None]
    assert pattern.shape[1] == pattern.shape[2]
    seen = (columns <= rows) & (columns > rows - window)
    assert pattern[:, seen].min() > 0 and not pattern[:, ~seen].any()


def test_missing_parts_are_explained(traced):
    assert traced("llama").missing == {}
    assert set(traced("lstm").missing) == {"patterns"}
    assert set(traced("llada").missing) == {"choices"}


@pytest.mark.parametrize("name", EMBEDDED)
def test_lens_of_the_last_layer_is_the_head(traced, name):
    trace = traced(name)
    lens, logits = trace.lens(1)[-1], trace["decoder.head" if name == "transformer" else "head"]
    # A prompt's logits are computed for its last token alone.
    count = min(len(lens.tokens), len(logits))
    assert [best for (best,) in lens.tokens[-count:]] == logits.argmax(axis=-1)[-count:].tolist()


def test_bridged_model_gives_its_modules_outputs_and_logits(tmp_path):
    from tests.helpers.mlx_lm_configs import write

    write(tmp_path, "helium")
    loaded = zoo.load(tmp_path)
    trace = zoo.trace(loaded, [3, 4, 5, 6], max_tokens=3)
    assert trace["logits"].shape[0] == 6 and trace.about("logits").axes == "B T V"
    assert [choice.token for choice in trace.choices(2)] == trace.tokens
    assert trace["network.model.layers.0.mlp"].shape == trace["network.model.layers.0"].shape
    assert trace.lens() == [] and trace.patterns == []
    assert set(trace.missing) == {"lens", "patterns"}
    assert "another library's code" in trace.missing["lens"]
    with zoo.intervene(loaded, {"network.model.layers.0.mlp": 0}):
        changed = zoo.trace(loaded, [3, 4, 5, 6], max_tokens=1)
    assert not changed["network.model.layers.0.mlp"].any()
    assert not np.array_equal(changed["logits"][:4], trace["logits"][:4])
