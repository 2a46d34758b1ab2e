"""Outputs that stand in a page between markers."""

import pytest
from building.outputs import Page, same

PAGE = """\
<!-- run python hidden
x = 3
-->

<!-- run python -->
```python
print(x + 1)
```

```text
OLD
```
<!-- end -->

It is <!-- py: x -->OLD<!-- end --> or <!-- fact: llama:8b decoder.layers -->OLD<!-- end -->.

<!-- run python markdown
print("| a |\\n|---|")
-->
<!-- end -->

<!-- run python folder -->
```python
from pathlib import Path
```
<!-- end -->
"""


def test_code_of_a_page_runs_in_order_and_its_outputs_stand_after_it():
    new = Page(PAGE).rewritten()
    assert "OLD" not in new
    assert "print(x + 1)\n```\n\n```text\n4\n```\n<!-- end -->" in new
    assert "It is <!-- py: x -->3<!-- end --> or <!-- fact: llama:8b decoder.layers -->32<!-- end -->." in new
    assert "-->\n\n| a |\n|---|\n\n<!-- end -->" in new
    assert Page(new).rewritten() == new


def test_code_that_fails_is_an_error():
    with pytest.raises(ZeroDivisionError):
        Page("<!-- run python hidden\n1 / 0\n-->\n").rewritten()


@pytest.mark.parametrize(
    ("old", "new", "varies", "equal"),
    [
        ("prompt 6 tokens, 88.1 tokens/s", "prompt 6 tokens,  9.25 tokens/s", False, True),
        ("prompt 6 tokens, 88.1 tokens/s", "prompt 7 tokens, 88.1 tokens/s", False, False),
        ("peak memory 5.4 MB", "peak memory 1.2 GB", False, True),
        ("difference 7.6e-06, logit 23.0", "difference 1.1e-05, logit 23.0", False, True),
        ("difference 7.6e-06, logit 23.0", "difference 7.6e-06, logit 24.0", False, False),
        ("weights 5.4 MB", "weights 5.5 MB", False, False),
        ("weights 5.4 MB", "weights 5.5 MB", True, True),
        ("loss 2.6312", "loss 2.6319", False, True),
        ("loss 2.6312 of 3", "loss 2.6312 of 4", False, False),
        ("loss 2.63", "loss 2.73", False, False),
        ("Paris", "Rome", True, False),
        ("a\nb", "a", True, False),
        ("a  b", "a b", False, False),
    ],
)
def test_outputs_differ_in_what_depends_on_the_machine_alone(old, new, varies, equal):
    assert same(old, new, varies) is equal
