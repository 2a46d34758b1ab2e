"""Drawings of Qwen3-Next's mixers. Imports no mlx."""

from zoo.describe.diagram import Note, note, parts
from zoo.describe.diagram.draw import activation, counted


def gated_delta_net(subject):
    """The convolved queries, keys and values, what α and β do with the state, and the gate."""
    spec = subject.spec
    rows = [
        [
            ("Query", "q"),
            ("Key", "k"),
            ("Value", "v"),
            ("Gate, SiLU" if spec.name == "gated-delta-net" else "Gate", "z"),
        ],
        [("Convolution", "convolution"), ""],
        [(activation(spec.activation), "convolution"), ("α", "alpha"), ("β", "beta"), ""],
        ("Delta rule", "A_log"),
        ("RMSNorm", "gain"),
        "×",
        ("Output", "output"),
    ]
    notes = [Note(counted(spec.heads, "head"), "heads")]
    if spec.key_heads != spec.heads:
        notes.append(Note(counted(spec.key_heads, "query and key head"), "key_heads"))
    notes += [
        note("state", "state {n} × {m} a head", n=spec.key_dim, m=spec.value_dim),
        note("kernel", "kernel {n}", n=spec.kernel),
    ]
    return subject.box("Gated delta rule", *notes, rows=rows)


def gated_attention(subject):
    """Attention, with its gate."""
    return parts.attention(subject).with_notes(Note("output gated by σ", "gate"))
