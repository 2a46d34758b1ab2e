"""The formulas that the tour shows give what the blocks and kernels give that run, on random numbers."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.assemble import build
from zoo.blocks import activation
from zoo.blocks.head import Head
from zoo.cache import KVCache
from zoo.generation.sampling import draw
from zoo.host.registry import default_registry
from zoo.recipe import (
    MLP,
    Attention,
    CrossAttention,
    GatedMLP,
    Layer,
    LayerNorm,
    LearnedPositions,
    MoE,
    RMSNorm,
    RoPE,
    SinusoidalPositions,
)
from zoo.recipe import Embedding as EmbeddingSpec
from zoo.recipe import Head as HeadSpec
from zoo.recipe.experts import Experts, Router
from zoo.testing import randomise, same
from zoo.training.loss import cross_entropy, next_token_loss

DOCS = Path(__file__).parents[2] / "docs"
T, D, H, K = 5, 12, 4, 6  # tokens, width, heads, width of a head
SUBJECTS = (
    *("attention", "cache", "diffusion", "embedding", "feedforward", "norms", "output", "positions"),
    *("quantization", "recurrence", "training"),
)


@pytest.fixture
def formulas():
    """The modules of docs/formulas by their names."""
    return SimpleNamespace(**{name: import_module(f"formulas.{name}") for name in SUBJECTS})


def made(spec, dim=D, seed=0):
    """The block of a spec, every parameter random."""
    module = build(spec, dim, registry=default_registry())
    randomise(module, seed)
    return module


def normal(*shape, seed=1):
    return mx.random.normal(shape, key=mx.random.key(seed))


def by_head(linear, heads):
    """A projection's matrix as one for each head: (heads, D, d)."""
    return mx.stack([part.T for part in mx.split(linear.weight, heads)])


def matrices(block):
    """The W_Q, W_K, W_V and W_O of a block of attention."""
    return (
        by_head(block.query, block.heads),
        by_head(block.key, block.kv_heads),
        by_head(block.value, block.kv_heads),
        block.output.weight.T,
    )


def test_an_embedding_is_a_row_of_the_table_and_a_tied_head_the_table_backwards(formulas):
    block = made(EmbeddingSpec(vocab=9, dim=D))
    head = Head(HeadSpec(vocab=9, tied=True), dim=D)
    head.tie(block)
    ids, E = mx.array([3, 0, 8, 3]), block.tokens.weight
    x = formulas.embedding.embedding(E, ids)
    same(x, block(ids[None])[0], "embedding", 0)
    same(formulas.embedding.tied_logits(E, x), head(x), "logits", 1e-6)


def test_learned_positions_are_added_to_the_embedding(formulas):
    block = made(EmbeddingSpec(vocab=9, dim=D, positions=LearnedPositions(context=7)))
    ids = mx.array([3, 0, 8, 3])
    found = formulas.positions.learned(block.tokens.weight, block.positions.weight, ids)
    same(found, block(ids[None])[0], "positions", 0)


def test_sinusoidal_positions_are_the_blocks(formulas):
    block = made(SinusoidalPositions())
    same(formulas.positions.sinusoidal(T, D), block(T), "sinusoids", 1e-6)


@pytest.mark.parametrize("theta", [100.0, 10000.0])
def test_rotary_positions_are_those_of_the_kernel(formulas, theta):
    x = normal(T, K)
    found = formulas.positions.rotary(x, theta)
    same(found, made(RoPE(theta=theta), K)(x[None, None])[0, 0], "RoPE", 1e-6)
    kernel = mx.fast.rope(x[None], K, traditional=False, base=theta, scale=1.0, offset=0)[0]
    same(found, kernel, "mx.fast.rope", 1e-6)


def test_softmax_is_that_of_mlx_also_for_large_scores(formulas):
    for scale in (1, 1000):
        z = scale * normal(T, 7)
        same(formulas.attention.softmax(z), mx.softmax(z, axis=-1), "softmax", 1e-6)


def test_attention_is_the_kernels(formulas):
    Q, K_, V = normal(T, K), normal(T, K, seed=2), normal(T, K, seed=3)
    kernel = mx.fast.scaled_dot_product_attention
    for M, mask in ((0.0, None), (formulas.attention.causal_mask(T), "causal")):
        expected = kernel(Q[None, None], K_[None, None], V[None, None], scale=K**-0.5, mask=mask)[0, 0]
        same(formulas.attention.attention(Q, K_, V, M), expected, str(mask), 1e-5)


def test_multi_head_attention_is_the_blocks(formulas):
    block, X = made(Attention(H, head_dim=K)), normal(T, D)
    found = formulas.attention.multi_head(X, *matrices(block), formulas.attention.causal_mask(T))
    same(found, block(X[None], "causal")[0], "attention", 1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_query_attention_is_the_blocks(formulas, groups):
    block, X = made(Attention(H, kv_heads=groups, head_dim=K)), normal(T, D)
    found = formulas.attention.grouped_query(X, *matrices(block), formulas.attention.causal_mask(T))
    same(found, block(X[None], "causal")[0], "attention", 1e-5)


def test_latent_attention_is_the_blocks_without_its_norm_and_its_rotated_key(formulas):
    from zoo_deepseek.spec import LatentAttention

    spec = LatentAttention(
        heads=H,
        kv_rank=5,
        nope_dim=K,
        rope_dim=2,
        value_dim=4,
        kv_norm=RMSNorm(),
        rope=RoPE(),
        scale=K**-0.5,
    )
    block, X = made(spec), normal(T, D)
    block.kv_norm = nn.Identity()
    down = block.kv_down.weight  # (R + 2, D); a rotated key of zero adds nothing to a score
    block.kv_down.weight = mx.concatenate([down[:5], mx.zeros((2, D))])
    queries = by_head(block.query, H)[..., :K]
    found = formulas.attention.latent(
        X,
        queries,
        down[:5].T,
        block.key_up.weight.swapaxes(-1, -2),  # kept the other way round, to bring queries to the latents
        block.value_up.weight,
        block.output.weight.T,
        formulas.attention.causal_mask(T),
    )
    same(found, block(X[None], "causal")[0], "attention", 1e-5)
    assert block.absorbs(1, T)  # the other order, of a token at a time
    cache = block.make_cache()
    steps = [block(X[None, t : t + 1], None, cache)[0] for t in range(T)]
    same(found, mx.concatenate(steps), "with a cache", 1e-5)


def test_cross_attention_is_the_blocks(formulas):
    block, X, memory = made(CrossAttention(H)), normal(T, D), normal(7, D, seed=2)
    found = formulas.attention.cross_attention(X, memory, *matrices(block))
    same(found, block(X[None], memory[None])[0], "cross-attention", 1e-5)


def test_gelu_and_the_feed_forward_are_the_blocks(formulas):
    x = 3 * normal(T, D)
    same(formulas.feedforward.gelu(x), activation.gelu_tanh(x), "GELU", 1e-6)
    block = made(MLP(hidden=20, activation="gelu_tanh"))
    parameters = block.up.weight.T, block.up.bias, block.down.weight.T, block.down.bias
    same(formulas.feedforward.feedforward(x, *parameters), block(x), "feed-forward", 1e-5)


def test_swiglu_is_the_blocks(formulas):
    block, x = made(GatedMLP(hidden=20)), normal(T, D)
    parameters = block.gate.weight.T, block.up.weight.T, block.down.weight.T
    same(formulas.feedforward.swiglu(x, *parameters), block(x), "SwiGLU", 1e-5)


def test_a_mixture_of_experts_is_the_blocks_and_computes_the_chosen_experts_only(formulas):
    block = made(MoE(router=Router(experts=6, top_k=2), experts=Experts(count=6, hidden=20)))
    x, called = normal(T, D), []
    W_g, parts = block.router.scores.weight.T, (block.experts.gate, block.experts.up, block.experts.down)

    def expert(i):
        def run(token):
            called.append(i)
            return formulas.feedforward.swiglu(token, *(part.weight[i].T for part in parts))

        return run

    found = [
        formulas.feedforward.mixture_of_experts(token, W_g, [expert(i) for i in range(6)], 2) for token in x
    ]
    same(mx.stack(found), block(x[None])[0], "experts", 1e-5)
    assert len(called) == 2 * T


def test_the_norms_are_those_of_the_kernels(formulas):
    x = 2 + 3 * normal(2, T, D)
    block = made(LayerNorm())
    same(formulas.norms.layer_norm(x, block.weight, block.bias), block(x), "LayerNorm", 1e-5)
    block = made(RMSNorm(eps=1e-5))
    same(formulas.norms.rms_norm(x, block.weight), block(x), "RMSNorm", 1e-5)
    block = nn.BatchNorm(D)
    randomise(block)
    same(formulas.norms.batch_norm(x, block.weight, block.bias), block(x), "BatchNorm", 1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_residual_sums_are_those_of_a_layer(formulas, placement):
    spec = Layer(Attention(H), GatedMLP(hidden=20), RMSNorm(), RMSNorm(), placement=placement)
    block, x = made(spec), normal(1, T, D)
    add = formulas.norms.pre_ln if placement == "pre" else formulas.norms.post_ln
    y = add(x, lambda h: block.mixer(h, "causal"), block.mixer_norm)
    same(add(y, block.feedforward, block.feedforward_norm), block(x, "causal"), placement, 1e-6)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_the_temperature_and_the_filters_are_those_of_sampling(formulas, tau):
    head, norm, h = made(HeadSpec(vocab=40)), made(RMSNorm()), 2 * normal(D)
    logits = head(norm(h)[None])  # (1, V)
    [warm] = draw.draw_processors(SimpleNamespace(**SETTINGS, temperature=tau))
    p = formulas.output.probabilities(h, head.output.weight, norm, tau)
    logits = warm.function(logits)
    same(p, mx.softmax(logits[0]), "temperature", 1e-5)
    for k in (1, 3, 40):
        same(formulas.output.top_k(p, k), mx.softmax(draw.top_k(logits, k)[0]), f"top-k {k}", 1e-5)
    for mass in (0.01, 0.5, 0.9):
        same(formulas.output.top_p(p, mass), mx.softmax(draw.top_p(logits, mass)[0]), f"top-p {mass}", 1e-5)


SETTINGS = dict(greedy=False, top_n_sigma=0, top_k=0, top_p=1, min_p=0, typical_p=1, min_tokens_to_keep=1)


def test_a_step_with_a_cache_is_that_of_the_block(formulas):
    block, X, cache = made(Attention(1, head_dim=K)), normal(T, D), KVCache()
    block.output = nn.Identity()
    W_Q, W_K, W_V = (linear.weight.T for linear in (block.query, block.key, block.value))
    keys, values = X[:2] @ W_K, X[:2] @ W_V
    block(X[None, :2], "causal", cache)
    for t in range(2, T):
        o, keys, values = formulas.cache.decode_step(X[t : t + 1], keys, values, W_Q, W_K, W_V)
        same(o, block(X[None, t : t + 1], None, cache)[0], f"token {t}", 1e-5)
    assert keys.shape == values.shape == (T, K)


def test_the_loss_with_teacher_forcing_is_that_of_training(formulas):
    table, x = normal(9, 9), mx.array([3, 0, 8, 3, 1])

    def model(ids):
        return table[ids]

    found = formulas.training.teacher_forced_loss(model, x)
    assert found.item() == pytest.approx(next_token_loss(model, x[None, :-1], x[None, 1:]).item(), rel=1e-5)


def test_the_loss_of_masked_tokens_is_that_of_training(formulas):
    table, x, places = normal(9, 9), mx.array([3, 0, 8, 3, 1]), [1, 4]
    targets = mx.array([[x[i].item() if i in places else -1 for i in range(5)]])
    read = mx.array([[8 if i in places else x[i].item() for i in range(5)]])
    found = formulas.training.masked_loss(lambda ids: table[ids], x, mx.array(places), 8)
    assert found.item() == pytest.approx(cross_entropy(table[read], targets).item(), rel=1e-5)
    assert x.tolist() == [3, 0, 8, 3, 1]


def test_a_step_of_an_lstm_is_the_blocks(formulas):
    from zoo_rnn import LSTM

    block, X, h, c = made(LSTM()), normal(T, D), mx.zeros(D), mx.zeros(D)
    bias = block.input.bias + block.recurrent.bias
    shown = []
    for x in X:
        h, c = formulas.recurrence.lstm_step(x, h, c, block.input.weight.T, block.recurrent.weight.T, bias)
        shown.append(h)
    same(mx.stack(shown), block(X[None])[0], "LSTM", 1e-5)


def test_the_state_space_is_that_of_mamba_in_chunks(formulas):
    from zoo_mamba import CHUNK, SelectiveStateSpace

    spec = SelectiveStateSpace(hidden=8, state=3, dt_rank=2)
    block, length = made(spec), 2 * CHUNK + 3
    x, delta = normal(length, 8), mx.abs(normal(length, 8, seed=2))
    B, C = normal(length, 3, seed=3), normal(length, 3, seed=4)
    A = -mx.exp(block.A_log)
    found = formulas.recurrence.state_space(x, delta, A, B, C, block.D)
    batched = (array[None] for array in (x, delta, B, C))
    expected, _ = block.scan(*batched, mx.zeros((1, 3, 8)))
    same(found, expected[0], "state space", 1e-5)


def test_a_pass_of_masked_diffusion_is_that_of_the_strategy(formulas):
    from zoo_llada.unmask import unmask_passes

    mask, weights = 8, normal(9, 9)

    def backbone(tokens):
        return (
            weights[tokens]
            + weights[tokens].mean(axis=1, keepdims=True)
            + mx.arange(tokens.shape[1])[:, None] * weights[0]
        )

    def head(hidden):
        return mx.where(mx.arange(9) == mask, -mx.inf, hidden)  # the mask is no prediction

    model = SimpleNamespace(backbone=backbone, head=head)
    start = mx.array([1, 2, *[mask] * 6])
    passes = unmask_passes(model, start[None], 2, 6, 3, mask, lambda logits: logits.argmax(axis=-1))
    x = start
    for expected in passes:
        x = formulas.diffusion.unmask(lambda ids: head(backbone(ids[None]))[0], x, mask, 2)
        assert x.tolist() == expected[0].tolist()
    assert start.tolist()[2:] == [mask] * 6 and mask not in x.tolist()


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_quantization_is_that_of_the_kernel(formulas, bits):
    w = normal(1, 64)
    packed, scale, offset = mx.quantize(w, group_size=64, bits=bits)
    expected = mx.dequantize(packed, scale, offset, group_size=64, bits=bits)
    found = formulas.quantization.quantize(w[0], scale[0, 0], offset[0, 0], bits)
    same(found, expected[0], f"{bits} bits", 1e-6)
    assert len(set(found.tolist())) <= 2**bits


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_formula_is_shown_on_a_page_of_the_tour(formulas, language):
    folder = (DOCS if language == "en" else DOCS / "zh") / "tour"
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.md"))
    for subject in SUBJECTS:
        module = getattr(formulas, subject)
        own = [
            name for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__
        ]
        assert own
        for name in own:
            assert text.count(f"<!-- code: formulas.{subject}:{name} -->\n") == 1, name


def test_the_lines_of_a_formula_are_few_and_fit_on_a_page(formulas):
    from inspect import getsource

    for subject in SUBJECTS:
        module = getattr(formulas, subject)
        for one in vars(module).values():
            if getattr(one, "__module__", "") == module.__name__:
                _, _, *lines = whole = getsource(
                    one
                ).splitlines()  # after the name and what it says of itself
                assert len(lines) <= 10 and max(map(len, whole)) <= 104, one.__name__
