"""LSTM and GRU, the recurrent language models that the Transformer replaced. Imports no mlx."""

from typing import ClassVar

from zoo.architecture import (
    Architecture,
    Block,
    Drawing,
    ModuleProbe,
    OutputHead,
    Preset,
    Rename,
    hookimpl,
    pocket,
)
from zoo.frozen import frozen
from zoo.recipe import Decoder, Embedding, Head, Matrix, Spec, repeat


@frozen()
class RecurrentUnit(Spec):
    """The base of LSTM and GRU: `gates` vectors a token, each made of the input and of the state before.

    `states` vectors are the state that goes from one token to the next.
    """

    kind: ClassVar[str] = "mixer"
    recurrent: ClassVar[bool] = True
    gates: ClassVar[int]
    states: ClassVar[int]
    bias: bool = True

    def matrices(self, dim):
        return tuple(Matrix(name, dim, self.gates * dim, bias=self.bias) for name in ("input", "recurrent"))

    def state_size(self, dim):
        return self.states * dim


@frozen()
class LSTM(RecurrentUnit):
    """A cell that input, forget and output gates guard (Hochreiter and Schmidhuber, 1997; Gers et al., 2000)."""

    name = "lstm"
    gates, states = 4, 2


@frozen()
class GRU(RecurrentUnit):
    """One state, a reset gate and an update gate (Cho et al., 2014)."""

    name = "gru"
    gates, states = 3, 1


@frozen()
class StackedLayer(Spec):
    """A mixer and nothing else: each layer reads what the one below gives, without residual sum or norm."""

    kind, name = "layer", "stacked"
    mixer: Spec


def lstm(config):
    """Long short-term memory, layer upon layer."""
    return recurrent(config, LSTM)


def gru(config):
    """Gated recurrent units, layer upon layer."""
    return recurrent(config, GRU)


def recurrent(config, unit):
    """The recipe of both: embedding and layers of one width, no final norm, a head."""
    layer = StackedLayer(mixer=unit(bias=config.flag("bias", True)))
    return Decoder(
        embedding=Embedding(vocab=config.count("vocab_size"), dim=config.count("hidden_size")),
        layers=repeat(layer, config.layers("num_layers")),
        norm=None,
        head=Head(tied=config.flag("tie_word_embeddings", False)),
    )


ENDS = (Rename("embed.*", "embedding.tokens.*"), OutputHead("lm_head.*", "head.output.*"))
# The names of torch.nn.LSTM's and torch.nn.GRU's tensors: ih from the input, hh from the state before.
WEIGHTS = (
    *ENDS,
    Rename("rnn.weight_ih_l{i}", "layers.{i}.mixer.input.weight"),
    Rename("rnn.weight_hh_l{i}", "layers.{i}.mixer.recurrent.weight"),
    Rename("rnn.bias_ih_l{i}", "layers.{i}.mixer.input.bias"),
    Rename("rnn.bias_hh_l{i}", "layers.{i}.mixer.recurrent.bias"),
)
# Names to which a quantized matrix can add its scales.
MLX_WEIGHTS = (
    *ENDS,
    Rename("rnn.layers.{i}.ih.*", "layers.{i}.mixer.input.*"),
    Rename("rnn.layers.{i}.hh.*", "layers.{i}.mixer.recurrent.*"),
)

# No norm enlarges what enters the gates: from embeddings of 0.02, training sees only word frequencies for long.
POCKET = dict(vocab_size=2048, num_layers=2, tie_word_embeddings=True, initializer_range=0.3)
TINY = POCKET | dict(vocab_size=256, hidden_size=64)
ZAREMBA = dict(vocab_size=10000, hidden_size=1500, num_layers=2)


@hookimpl
def zoo_blocks():
    yield Block(LSTM, "zoo_rnn.block:LSTM", "long short-term memory")
    yield Block(GRU, "zoo_rnn.block:GRU", "gated recurrent unit")
    yield Block(StackedLayer, "zoo_rnn.block:StackedLayer", "a mixer without residual or norm")


@hookimpl
def zoo_drawings():
    yield Drawing(LSTM, "zoo_rnn.drawing:lstm")
    yield Drawing(GRU, "zoo_rnn.drawing:gru")
    yield Drawing(StackedLayer, "zoo_rnn.drawing:stacked_layer")


@hookimpl
def zoo_architectures():
    yield Architecture(
        name="lstm",
        summary="gates around a cell, one token after the other, constant memory",
        model_types=("lstm",),
        recipe=lstm,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            pocket(__file__, "lstm", **POCKET, hidden_size=200),
            Preset("large", "the large model of Zaremba et al., 2014", config=ZAREMBA),
            Preset("tiny", config=TINY),
        ),
        references=(
            "Hochreiter and Schmidhuber, 1997, Long Short-Term Memory",
            "Gers et al., 2000, Learning to Forget",
            "Zaremba et al., 2014, arXiv:1409.2329",
        ),
        published="1997-11",
    )
    yield Architecture(
        name="gru",
        base="lstm",
        summary="LSTM with one state and two gates in the place of two and three",
        model_types=("gru",),
        recipe=gru,
        weights=WEIGHTS,
        mlx_weights=MLX_WEIGHTS,
        presets=(
            pocket(__file__, "gru", **POCKET, hidden_size=224),
            Preset("large", "the sizes of the large LSTM of Zaremba et al., 2014", config=ZAREMBA),
            Preset("tiny", config=TINY),
        ),
        references=("Cho et al., 2014, arXiv:1406.1078",),
        published="2014-06",
    )


@hookimpl
def zoo_probes():
    yield ModuleProbe("zoo_rnn.block:LSTM", "zoo_rnn.probe:LSTMProbe")
    yield ModuleProbe("zoo_rnn.block:GRU", "zoo_rnn.probe:GRUProbe")
