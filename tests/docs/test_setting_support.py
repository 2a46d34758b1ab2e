"""The table of settings says what is taken, and what is refused is refused."""

import pytest
from building.setting_support import setting_support, table

import zoo
from zoo.errors import PromptError
from zoo.testing import subject
from zoo.testing.subjects import loaded_of

VALUES = {"max_kv_size": 8, "keep": 0, "kv_bits": 8, "prompt_lookup": 2, "max_time": 5.0, "typical_p": 0.9}
VALUES |= {"guidance_scale": 2.0}


@pytest.mark.parametrize("name", ["llama", "mamba", "bert", "llada", "marian"])
@pytest.mark.parametrize("setting", sorted(VALUES))
def test_what_the_table_says_holds(name, setting):
    made = subject(name)
    found = next(
        one for one in setting_support(made.architecture, made.model, made.registry) if one.setting == setting
    )
    given = {setting: VALUES[setting]} | ({"max_kv_size": 8} if setting == "keep" else {})
    if found.strategies:
        assert found.refused is None
        assert zoo.generate(loaded_of(made), [1, 2, 3], max_tokens=2, temperature=None, **given).tokens
    else:
        assert (
            f"`{setting}`" in found.refused
            or "`max_kv_size`" in found.refused
            or "`kv_bits`" in found.refused
        )
        with pytest.raises(PromptError):
            zoo.generate(loaded_of(made), [1, 2, 3], **given)


def test_models_with_the_same_support_share_a_column():
    made = {name: subject(name) for name in ("llama", "gpt2", "mamba")}
    head, *rows = table({n: (s.architecture, s.model) for n, s in made.items()}, made["llama"].registry)
    assert head[0] == "setting" and "mamba" in head[1:]
    assert sorted(name for names in head[1:] for name in names.split(", ")) == ["gpt2", "llama", "mamba"]
    cells = next(row for row in rows if row[0] == "max_kv_size")
    assert cells[head.index("mamba")] == "refused"
