"""What is marked among several diagrams, and what is not."""

from zoo.describe.diagram import Frame, Residual, marked
from zoo.describe.diagram.model import boxes


def told(diagram, stack=0):
    """The titles, notes, cells and frames that are marked."""
    found, items = [], list(diagram.stacks[stack].items)
    for box in (diagram.stacks[stack].start, *boxes(items), diagram.stacks[stack].end):
        found += [box.title] if box.differs else []
        found += [note.text for note in box.notes if note.differs]
        found += [cell.title for row in box.rows for cell in row if cell.differs]
    return found + [f"{item.count} ×" for item in items if isinstance(item, Frame) and item.differs]


def test_only_what_differs_is_marked(draw):
    llama, mixtral = marked([draw("llama"), draw("mixtral")])
    assert told(llama) == [
        *("context 131,072", "vocabulary 128,256", "RoPE base 500,000", "LLaMA-3 scaling ×8"),
        "SwiGLU feed-forward",
    ]
    assert told(mixtral) == [
        *("context 32,768", "vocabulary 32,000", "RoPE base 1,000,000"),
        *("Mixture of experts", "8 experts, 2 used", "SwiGLU experts"),
    ]


def test_equal_models_have_no_mark(draw):
    assert [told(diagram) for diagram in marked([draw("llama"), draw("llama")])] == [[], []]
    assert told(marked([draw("llama")])[0]) == []


def test_norms_differ_by_their_place(draw):
    before, after = marked([draw("gpt2"), draw("gpt2-postln")])
    assert told(before) == ["LayerNorm", "LayerNorm", "Final LayerNorm"]
    assert told(after) == ["LayerNorm", "LayerNorm"]


def test_the_frame_of_most_layers_stands_beside_that_of_others(draw):
    llama, deepseek = marked([draw("llama"), draw("deepseek-v3")])
    assert "Mixture of experts" in told(deepseek) and "SwiGLU feed-forward" in told(llama)
    dense = next(item for item in deepseek.stacks[0].items if isinstance(item, Frame))
    differing = {box.role for box in boxes(dense.items) if box.differs}
    assert dense.differs and differing == {
        "attention"
    }  # llama's layers are dense too, but have no latent attention


def test_a_missing_sum_is_marked(draw):
    llama, mamba = marked([draw("llama"), draw("mamba")])
    frame = next(item for item in llama.stacks[0].items if isinstance(item, Frame))
    assert [item.differs for item in frame.items if isinstance(item, Residual)] == [False, True]
    assert "Selective state space" in told(mamba)


def test_stacks_are_compared_by_role(draw):
    t5 = marked([draw("llama"), draw("t5")])[1]
    assert [stack.differs for stack in t5.stacks] == [True, False]
    assert not any(box.differs for box in boxes(t5.stacks[0].items))
    assert "Cross-attention" in told(t5, 1)
    three = marked([draw("transformer"), draw("t5"), draw("llama")])
    assert told(three[0], 0) == told(marked([draw("transformer"), draw("t5")])[0], 0)
