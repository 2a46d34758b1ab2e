"""Policies against their definition: attention over the keys that they keep, of the values that quantizing leaves."""

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import pytest

from tests.helpers.parameters import ordinary
from zoo.assemble import assemble
from zoo.blocks.mask import attention_mask, dense
from zoo.cache import Cache, CachePolicy, KVCache, StateCache, WindowCache, can_merge, merged_caches, refused
from zoo.checkpoint.open import make_recipe
from zoo.errors import PromptError
from zoo.host.registry import default_registry
from zoo.testing import randomise, same
from zoo.testing.subjects import TOLERANCE, numbers_of, subject

REGISTRY = default_registry()
TOTAL = 26  # tokens: more than any window here

# What makes the heads of the small models wide enough to be packed, and the window large enough to be bounded.
CHANGES = {
    "llama": dict(head_dim=32),
    "prefix-lm": dict(head_dim=32),
    "gemma2": dict(head_dim=32),
    "gpt2": dict(n_head=2),
    "gpt-oss": dict(head_dim=32, sliding_window=11),
    "deepseek-v3": dict(qk_rope_head_dim=32),
    "mistral": dict(head_dim=32),
    "dynamic": dict(
        head_dim=32, max_position_embeddings=12, rope_scaling=dict(rope_type="dynamic", factor=4.0)
    ),
}
NAMES = ("llama", "gemma2", "gpt-oss", "mistral", "deepseek-v3", "gpt2", "prefix-lm", "dynamic")
POLICIES = {
    "bounded": CachePolicy(max_size=9, keep=3),
    "newest": CachePolicy(max_size=7),
    "bits": CachePolicy(key_bits=8, value_bits=4, group_size=32),
    "start": CachePolicy(key_bits=4, value_bits=8, group_size=32, start=5),
    "keys": CachePolicy(key_bits=8),
    "both": CachePolicy(max_size=10, keep=2, key_bits=8, value_bits=8),
    "all": CachePolicy(max_size=10, keep=4, key_bits=8, value_bits=4, start=3),
}


class Reference(Cache):
    """Every key and value in one array, those from `start` on as quantizing leaves them."""

    def __init__(self, policy):
        super().__init__(policy)
        self.state = []

    def left(self, x, bits):
        if bits is None:
            return x
        size = next(size for size in (self.policy.group_size, 64, 32) if x.shape[-1] % size == 0)
        parts = mx.quantize(x, group_size=size, bits=bits)
        left = mx.dequantize(*parts, group_size=size, bits=bits)
        first = max(self.policy.start - self.length, 0)
        return mx.concatenate([x[:, :, :first], left[:, :, first:]], axis=2)

    def update_and_fetch(self, keys, values):
        new = [self.left(keys, self.policy.key_bits), self.left(values, self.policy.value_bits)]
        self.length += keys.shape[2]
        self.state = (
            [mx.concatenate(pair, axis=2) for pair in zip(self.state, new, strict=True)]
            if self.state
            else new
        )
        return self.state


def reference_mask(policy):
    def mask(queries, *, length, causality, window, prefix, **rest):
        """(T, S): which of all columns each query sees, one by one."""

        def seen(query, key):
            if causality == "prefix" and key < (prefix or 0):
                near = True
            else:
                near = key <= query
            inside = window is None or key > query - window
            size, keep = policy.max_size, policy.keep
            kept = size is None or key < keep or key > query - (size - keep)
            return near and inside and kept

        rows = range(length, length + queries)
        return mx.array([[seen(query, key) for key in range(length + queries)] for query in rows])

    return mask


@pytest.fixture(scope="module")
def made():
    models = {}

    def get(name):
        if name not in models:
            architecture = REGISTRY.architecture("llama" if name == "dynamic" else name)
            recipe = make_recipe(
                architecture, {**numbers_of(architecture), **CHANGES.get(name, {})}, REGISTRY
            )
            models[name] = assemble(recipe, REGISTRY)
            randomise(models[name])
        return models[name]

    return get


def pieces(model, tokens, caches, cuts, prefix):
    found, start = [], 0
    for end in (*cuts, tokens.shape[1]):
        more = {"prefix": cuts[0]} if prefix and not start else {}
        found.append(model(tokens[:, start:end], caches, **more))
        start = end
    return mx.concatenate(found, axis=1)


def tolerance(policy):
    """A number between two that bits can tell apart falls on either side, by the last bit of a product."""
    return 0.02 if policy.quantizes else TOLERANCE


CASES = [("llama", policy) for policy in POLICIES]
CASES += [(name, "all") for name in NAMES[1:]] + [("prefix-lm", "bounded"), ("dynamic", "bounded")]


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_a_policy_is_what_it_says(made, monkeypatch, name, policy):
    model, prefix, policy = made(name), name == "prefix-lm", POLICIES[policy]
    tokens = mx.random.randint(0, model.spec.embedding.vocab, (1, TOTAL), key=mx.random.key(1))
    caches = model.make_cache(policy)
    assert refused(caches, policy) is None
    cuts = (6, 7, 8, 19, 20)
    found = pieces(model, tokens, caches, cuts, prefix)
    monkeypatch.setattr("zoo.blocks.decoder.attention_mask", reference_mask(policy))
    # Angles that depend on the length of the text make the same pieces necessary.
    expected = pieces(model, tokens, [Reference(policy) for _ in caches], cuts, prefix)
    same(found, expected, f"logits of {name}", tolerance(policy))


@pytest.mark.parametrize(
    ("name", "policy"),
    [("llama", "all"), *((name, "bounded") for name in NAMES if name not in ("gpt2", "mistral"))],
)
def test_rows_of_a_batch_go_on_as_alone(made, name, policy):
    model, prefix, policy = made(name), name == "prefix-lm", POLICIES[policy]
    tokens = mx.random.randint(0, model.spec.embedding.vocab, (3, TOTAL), key=mx.random.key(2))
    at, alone = [17, 2, 8], []  # after, and before, the first tokens were dropped
    for row, length in enumerate(at):
        caches = model.make_cache(policy)
        model(tokens[row : row + 1, :length], caches, **({"prefix": length} if prefix else {}))
        alone.append(caches)
    assert all(map(can_merge, alone))
    batch = merged_caches(alone)
    for count in (1, 3, 1):
        new = mx.concatenate([tokens[row : row + 1, at[row] : at[row] + count] for row in range(3)])
        found = model(new, batch)
        for row in range(3):
            expected = model(new[row : row + 1], alone[row])
            same(found[row : row + 1], expected, f"row {row} at {at[row]}", tolerance(policy))
            at[row] += count


def visible(cache, keys, values):
    """The keys and values that each query of each row sees, once the cache has taken these (B, G, T, K) in."""
    count, length = keys.shape[2], cache.length
    settings = dict(length=length, start=cache.start(count), padding=cache.padding, bound=cache.bound)
    mask = attention_mask(count, window=cache.window, **settings)
    kept = cache.update_and_fetch(keys, values)
    columns = kept[0].shape[2]
    mask = mx.ones((count, columns), dtype=mx.bool_) if mask is None else dense(mask, count, columns)
    mask = mx.broadcast_to(mask.reshape(-1, *mask.shape[-2:]), (len(keys), count, columns))
    return [
        [[[array[row, 0, j].tolist() for j in range(columns) if seen[j]] for array in kept] for seen in rows]
        for row, rows in enumerate(mask.tolist())
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("window", ordinary([None, 5, 12], 5))
def test_rows_are_exactly_what_they_are_alone(policy, window):
    policy = POLICIES[policy]
    keys, values = mx.random.normal((2, 4, 1, 60, 32), key=mx.random.key(5))  # (B, G, T, K) each

    def cache():
        return KVCache(policy) if window is None else WindowCache(window, policy)

    def new(row, start, count):
        return (array[row : row + 1, :, start : start + count] for array in (keys, values))

    at, alone = [17, 2, 8, 8], [cache() for _ in range(4)]
    for row, length in enumerate(at):
        visible(alone[row], *new(row, 0, length))
    batch, rows = merged_caches([[one] for one in alone[:3]])[0], [0, 1, 2]
    for count in (1, 3, 1, 12, 1, 1):
        if at[0] == 21 and 0 in rows:  # the longest text leaves, and another comes
            batch.select(mx.array([2, 1]))
            batch.compact()
            batch, rows = type(batch).merge([batch, alone[3]]), [2, 1, 3]
        given = [list(new(row, at[row], count)) for row in rows]
        found = visible(batch, *(mx.concatenate(arrays) for arrays in zip(*given, strict=True)))
        for place, row in enumerate(rows):
            equal = found[place] == visible(alone[row], *given[place])[0]
            assert equal, f"row {row} at {at[row]}"
            at[row] += count
    for place, row in enumerate(rows):
        snapshot, again = batch.snapshot(place), cache()
        assert snapshot.length == at[row] and snapshot.kind == alone[row].kind
        for _ in range(2):  # twice: what is done with it does not change it
            again.restore(snapshot)
            one = cache()
            one.restore(alone[row].snapshot())
            for count in (1, 4):
                more = list(new(row, at[row], count))
                equal = visible(again, *more) == visible(one, *more)
                assert equal
    if batch.trims:
        before, row = batch.snapshot(0), rows[0]
        visible(batch, *(mx.concatenate([a] * 3) for a in new(row, at[row], 3)))
        batch.trim(3)
        after = batch.snapshot(0)
        assert after.length == before.length
        assert all(mx.array_equal(*pair) for pair in zip(before.arrays, after.arrays, strict=True))


def test_what_cannot_be_is_refused(made):
    with pytest.raises(PromptError, match="`keep` must be less than `max_kv_size`, 4, got 4"):
        CachePolicy(max_size=4, keep=4)
    with pytest.raises(PromptError, match="`key_bits` must be 4 or 8, got 3"):
        CachePolicy(key_bits=3)
    states = [StateCache(1)]
    assert refused(states, CachePolicy()) is None
    assert "`max_kv_size`: this model keeps no keys" in refused(states, CachePolicy(max_size=4))
    assert "`kv_bits`: this model keeps no keys" in refused(states, CachePolicy(key_bits=8))
    bits = CachePolicy(value_bits=8)
    assert refused([*states, KVCache(bits)], bits) is None
    assert "`kv_bits`: Own keeps" in refused([type("Own", (Cache,), {})()], bits)
    assert "`kv_bits`: object is another library's" in refused([object()], bits)
    with pytest.raises(PromptError, match="`kv_bits`: vectors of 24 numbers are no groups"):
        KVCache(bits).update_and_fetch(*mx.zeros((2, 1, 1, 3, 24)))


def test_texts_of_one_policy_share_the_engine_and_the_prompt_cache():
    loaded, prompts = zoo.load("llama"), ["The capital city of China is", "中国的首都是北京。日本的首都是"]
    settings = dict(max_kv_size=10, keep=2, key_bits=8, value_bits=8, max_tokens=12)
    alone = [zoo.generate(loaded, prompt, **settings).tokens for prompt in prompts]
    kept = zoo.PromptCache(loaded)
    for _ in range(2):
        engine, found = zoo.Engine(loaded, prompt_cache=kept), {}
        handles = [engine.add(prompt, **settings) for prompt in prompts]
        handles.append(engine.add(prompts[0], max_tokens=12))  # of another policy beside them
        for handle, step in engine.run():
            found.setdefault(handle, []).append(step.token)
        assert [found[handle] for handle in handles[:2]] == [list(tokens) for tokens in alone]
    assert kept.statistics.hits


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mamba", dict(max_kv_size=8), "`max_kv_size`: this model keeps no keys and values"),
        ("deepseek-v3", dict(kv_bits=8), r"`kv_bits`: values of 16 numbers .* \(layers.0.mixer\)"),
        ("llama", dict(kv_start=3), "`kv_start` needs `kv_bits`"),
        ("llama", dict(keep=3), "`keep` needs `max_kv_size`"),
    ],
)
def test_what_a_model_cannot_follow_is_refused_before_anything_runs(name, settings, message):
    with pytest.raises(PromptError, match=message):
        zoo.stream(zoo.load(name), "The", **settings)


@pytest.mark.parametrize("name", ["t5", "umt5"])  # one of all layers, one of each layer
def test_a_bias_of_distances_refuses_a_bound(name):
    model = subject(name).model
    bound, plain = CachePolicy(max_size=8), CachePolicy()
    assert "`max_kv_size`: the bias" in model.refused(model.make_cache(bound), bound)
    assert model.refused(model.make_cache(plain), plain) is None


@pytest.mark.parametrize("keep", [0, 2])
def test_a_bounded_target_is_the_same_in_pieces(keep):
    made, policy = subject("transformer"), CachePolicy(max_size=6, keep=keep)
    target = mx.random.randint(3, made.vocab, (1, 15), key=mx.random.key(0))
    memory = made.model.encode(target[:, :5])
    for size in (1, 5):
        whole, caches = made.model.make_cache(policy), made.model.make_cache(policy)
        pieces = [made.model.decode(target[:, i : i + size], memory, caches) for i in range(0, 15, size)]
        same(mx.concatenate(pieces, axis=1), made.model.decode(target, memory, whole), f"{size} at once")
