"""The zoo's decoders under mlx-lm's own generate, batch_generate, server and LoRA trainer."""

import json
import threading
import urllib.request
from functools import partial
from http.server import ThreadingHTTPServer
from importlib import import_module
from types import SimpleNamespace

import pytest

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.nn as nn
import mlx_lm
from mlx.utils import tree_flatten
from mlx_lm import lora, server
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import ArraysCache, KVCache, LRUPromptCache, make_prompt_cache
from mlx_lm.tuner.callbacks import TrainingCallback
from mlx_lm.tuner.datasets import TextDataset
from mlx_lm.tuner.utils import load_adapters

from tests.helpers.waiting import PATIENCE
from zoo import recipe
from zoo.blocks.position import LearnedPositions
from zoo.cache import Cache
from zoo.checkpoint.convert import convert
from zoo.errors import PluginError, PromptError, TokenizerError, ZooError
from zoo.host.registry import default_registry
from zoo.loading import Loaded
from zoo.testing import same, subject
from zoo_mlx_lm import tools as integration
from zoo_mlx_lm.tools import load

PROMPTS = ["The capital city of China is", "Hi", "The capital city of France, a country, is", "中国的首都是"]
NEW = 8
pytestmark = pytest.mark.usefixtures("interpreted")
# mlx-lm's caches of models whose layers have states, or keys.
STATE, KEYS = partial(ArraysCache, 2), KVCache
CACHES = {
    "granite-hybrid": [STATE, KEYS, STATE],
    "jamba": [STATE, KEYS, STATE],
    "lfm2": [partial(ArraysCache, 1), KEYS, partial(ArraysCache, 1)],
    "nemotron-h": None,  # a layer of it keeps nothing: its own
    "qwen3-next": [STATE, KEYS, STATE, KEYS],
}


def decoders():
    """The pockets of every architecture that writes text from left to right."""
    found = default_registry().architectures.items()
    pockets = {name: a for name, a in found if a.preset("pocket") and a.preset("pocket").embedded}
    return [name for name, a in pockets.items() if a.task == "generate" and a.causality == "causal"]


def likeliest(model, prompt, new):
    """Assert that each new token is what a full forward pass would choose, up to near ties."""
    logits = model(mx.array([prompt + new]))[0, len(prompt) - 1 : -1].astype(mx.float32)  # (T, V)
    for row, token in zip(logits, new, strict=True):
        assert (row.max() - row[token]).item() <= 1e-3 * (row.max() - row.min()).item(), token


@pytest.mark.parametrize("name", CACHES)
def test_a_hybrid_runs_with_the_caches_of_mlx_lm(name):
    made = subject(name)
    served, tokens = integration.Served(made.model, {}, name), made.tokens
    caches = [kind() for kind in CACHES[name]] if CACHES[name] else served.make_cache()
    pieces = [served(tokens[:, :5], caches), served(tokens[:, 5:], caches)]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")


# generate and batch_generate


@pytest.mark.slow
@pytest.mark.parametrize("name", decoders())
def test_generates_what_the_zoo_does(name):
    model, tokenizer = load(name)
    loaded = zoo.load(name)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    assert prompts == [loaded.tokenizer.encode(prompt) for prompt in PROMPTS]
    text = mlx_lm.generate(model, tokenizer, PROMPTS[0], max_tokens=NEW)
    mine = zoo.generate(loaded, PROMPTS[0], max_tokens=NEW, temperature=0.0).text
    assert text.strip() == mine.strip() != ""  # mlx-lm's begins without a space
    for step in (2048, 3):  # the shorter rows of a batch are padded on the right, then rolled
        batch = mlx_lm.batch_generate(
            model, tokenizer, prompts, max_tokens=NEW, return_token_ids=True, prefill_step_size=step
        )
        for prompt, new in zip(prompts, batch.token_ids, strict=True):
            likeliest(loaded.model, prompt, new)
        assert sum(map(len, batch.token_ids)) > NEW
    steps = list(mlx_lm.stream_generate(model, tokenizer, PROMPTS[2], max_tokens=NEW, prefill_step_size=3))
    likeliest(loaded.model, prompts[2], [step.token for step in steps])
    assert steps[-1].finish_reason in ("stop", "length")


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss", "mistral", "mamba", "lstm", "deepseek-v3"])
def test_texts_longer_than_a_window_in_a_batch(name):
    made = subject(name, "tiny" if name == "mistral" else None)
    model = integration.served(Loaded(made.model, None, made.architecture, made.recipe, {}, None))
    windows = [spec.window for _, spec in made.recipe.walk() if getattr(spec, "window", None)]
    length = max([12, *windows]) + 5
    tokens = mx.random.randint(0, made.vocab, (1, length), key=mx.random.key(2))[0].tolist()
    prompts = [tokens, tokens[3:9], tokens[: length - 2]]
    generator = BatchGenerator(model, max_tokens=6, prefill_step_size=7)
    uids = generator.insert(prompts)
    found = {uid: [] for uid in uids}
    while responses := generator.next_generated():
        for response in responses:
            found[response.uid].append(response.token)
    generator.close()
    for uid, prompt in zip(uids, prompts, strict=True):
        assert len(found[uid]) == 6
        likeliest(made.model, prompt, found[uid])


def test_a_row_that_passes_the_learned_positions_stays_at_the_last():
    positions = LearnedPositions(recipe.LearnedPositions(4), dim=2)
    assert mx.array_equal(positions(3, mx.array([2, -1])), positions.weight[mx.array([[2, 3, 3], [0, 0, 1]])])


def test_drafts_of_another_model_and_a_cache_kept_between_calls():
    model, tokenizer = load("llama")
    draft, _ = load("qwen3")
    plain = mlx_lm.generate(model, tokenizer, PROMPTS[2], max_tokens=NEW)
    assert mlx_lm.generate(model, tokenizer, PROMPTS[2], max_tokens=NEW, draft_model=draft) == plain
    cache = make_prompt_cache(model)
    beginning, end = "The capital city of France,", " a country, is"
    mlx_lm.generate(model, tokenizer, beginning, max_tokens=1, prompt_cache=cache)
    for layer in cache:
        layer.trim(layer.offset - len(tokenizer.encode(beginning)))
    assert mlx_lm.generate(model, tokenizer, end, max_tokens=NEW, prompt_cache=cache) == plain


# The server


class Provider(server.ModelProvider):
    """mlx-lm's provider of models, with the zoo's `load`."""

    def _load(self, model_path, adapter_path=None, draft_model_path=None):
        self.reset()
        self.model, self.tokenizer = load(model_path, adapter_path=adapter_path)
        self.model_key = (model_path, adapter_path, draft_model_path)
        self.is_batchable = all(hasattr(cache, "merge") for cache in make_prompt_cache(self.model))


SERVER = dict(
    **dict(model="llama", adapter_path=None, draft_model=None, num_draft_tokens=3, trust_remote_code=False),
    **dict(chat_template="", use_default_chat_template=False, chat_template_args={}, allowed_origins="*"),
    **dict(temp=0.0, top_p=1.0, top_k=0, min_p=0.0, max_tokens=NEW, pipeline=False),
    **dict(decode_concurrency=4, prompt_concurrency=4, prefill_step_size=64),
    **dict(prompt_cache_size=4, prompt_cache_bytes=None),
    **dict(kv_bits=None, kv_group_size=64, quantized_kv_start=0),
)


@pytest.fixture
def address():
    """Where mlx-lm's server answers, on this machine alone."""
    provider = Provider(SimpleNamespace(**SERVER))
    responses = server.ResponseGenerator(provider, LRUPromptCache(4))

    def handler(*arguments, **keywords):
        return server.APIHandler(responses, *arguments, system_fingerprint="zoo", **keywords)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()
    responses.stop_and_join()


def test_the_server_completes_a_text(address):
    body = {"prompt": PROMPTS[0], "max_tokens": NEW, "temperature": 0.0}
    request = urllib.request.Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        found = json.load(answer)
    mine = zoo.generate(zoo.load("llama"), PROMPTS[0], max_tokens=NEW).text
    assert found["choices"][0]["text"].strip() == mine.strip() != ""
    assert found["usage"]["prompt_tokens"] == 6


# LoRA


def train(name, out, texts=6, iters=6, **settings):
    """What `mlx_lm lora --train` does; gives the trained model and its losses."""
    model, tokenizer = load(name)
    rows = [{"text": f"The capital city of Zooland {number} is Mlxville."} for number in range(texts)]
    data = TextDataset(rows, tokenizer)
    losses = []

    class Losses(TrainingCallback):
        def on_train_loss_report(self, train_info):
            losses.append(train_info["train_loss"])

    how = lora.CONFIG_DEFAULTS | dict(
        **dict(model=str(name), train=True, adapter_path=str(out), iters=iters, batch_size=2, num_layers=2),
        **dict(learning_rate=1e-3, steps_per_report=1, steps_per_eval=1000, val_batches=1),
        **dict(lora_parameters={"rank": 4, "dropout": 0.0, "scale": 4.0}),
    )
    lora.train_model(SimpleNamespace(**how | settings), model, data, data, Losses())
    model.eval()
    return model, losses


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "dora", "full"])
def test_an_adapter_loads_in_the_zoo_and_under_mlx_lm(kind, tmp_path, capsys):
    convert("llama", tmp_path / "model", dtype="float32")  # stored in 16 bits a sum would be rounded
    model, losses = train(tmp_path / "model", tmp_path / "adapter", fine_tune_type=kind)
    assert losses[-1] < losses[0] - 0.5
    names = list(mx.load(str(tmp_path / "adapter" / "adapters.safetensors")))
    assert all(name.startswith(("layers.2.", "layers.3.")) for name in names)
    tokens = mx.array([[5, 80, 300, 7, 19]])
    expected = model(tokens)
    same(zoo.load(tmp_path / "model", adapter=tmp_path / "adapter").model(tokens), expected, "in the zoo")
    again = load_adapters(load(tmp_path / "model")[0], str(tmp_path / "adapter")).eval()
    same(again(tokens), expected, "under mlx-lm")
    convert(tmp_path / "model", tmp_path / "fused", adapter=tmp_path / "adapter")
    same(mlx_lm.load(str(tmp_path / "fused"))[0](tokens), expected, "fused, in mlx-lm's own model")


@pytest.mark.slow
def test_an_adapter_of_packed_matrices(tmp_path):
    convert("qwen3", tmp_path / "q", quantize="4", group_size=32)
    model, losses = train(tmp_path / "q", tmp_path / "adapter")
    assert losses[-1] < losses[0] - 0.5
    tokens = mx.array([[5, 80, 300, 7, 19]])
    same(zoo.load(tmp_path / "q", adapter=tmp_path / "adapter").model(tokens), model(tokens), "logits")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mixtral", "gpt-oss", "deepseek-v3", "mamba", "gru"])
def test_every_kind_of_decoder_can_be_trained(name, tmp_path):
    _, losses = train(name, tmp_path / "adapter", texts=2, iters=3)
    assert losses[-1] < losses[0]
    assert zoo.load(name, adapter=tmp_path / "adapter").model is not None


def test_experts_are_left_as_they_are(tmp_path):
    train("mixtral", tmp_path / "adapter", texts=2, iters=1)
    names = list(mx.load(str(tmp_path / "adapter" / "adapters.safetensors")))
    assert any(".mixer.query." in name for name in names) and any(".router." in name for name in names)
    assert not any(".experts." in name for name in names)


# What it is, and what it refuses


def test_linear_layers_are_plain_and_parameters_are_the_zoos():
    model, _ = load("llama")
    assert type(model.layers[0].mixer.query) is nn.Linear
    assert model.args.hidden_size == 128 and model.model_type == "llama"
    mine = dict(tree_flatten(zoo.load("llama").model.parameters()))
    assert dict(tree_flatten(model.parameters())).keys() == mine.keys()


@pytest.mark.parametrize("name", ["bert", "llada", "prefix-lm", "transformer"])
def test_what_does_not_write_from_left_to_right_is_refused(name):
    with pytest.raises(ZooError, match=f"{name}: mlx-lm's tools write text from left to right"):
        load(name)


def test_code_of_a_checkpoint_and_other_configs_are_refused():
    with pytest.raises(ZooError, match="trust_remote_code"):
        load("llama", trust_remote_code=True)
    with pytest.raises(ZooError, match="model_config: quantize_activations"):
        load("llama", model_config={"quantize_activations": True})
    assert len(load("llama", model_config={"quantize_activations": False}, return_config=True)) == 3


def test_a_quantized_cache_and_a_folder_without_a_tokenizer_are_one_line(folder):
    model, tokenizer = load("llama")
    with pytest.raises(PromptError, match="kv_bits"):
        mlx_lm.generate(
            model, tokenizer, PROMPTS[2], max_tokens=2, kv_bits=8, kv_group_size=32, quantized_kv_start=0
        )
    with pytest.raises(TokenizerError, match="transformers reads no tokenizer"):
        load(folder(tokenizer=False))


def test_a_cache_that_mlx_lm_does_not_have_is_named():
    class Mine(Cache):
        pass

    with pytest.raises(PluginError, match="no counterpart of the cache Mine"):
        integration.counterpart(Mine())


def test_the_command_runs_mlx_lms(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [])  # put back afterwards, as the tool's own function is
    monkeypatch.setattr(import_module("mlx_lm.generate"), "load", None)
    command = ["generate", "--model", "llama", "--prompt", PROMPTS[0], "--max-tokens", "6", "--verbose", "F"]
    integration.main(command)
    assert "Beijing" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="usage"):
        integration.main(["fuse"])
