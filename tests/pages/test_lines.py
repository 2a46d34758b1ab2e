"""Lines of Chinese pages join as the language is written."""

from types import SimpleNamespace

import pytest
from building import chinese_line_breaks as lines
from docutils import nodes
from docutils.utils import new_document


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["保留最有把握\n的预测"], "保留最有把握的预测"),
        (["所有掩码，\n保留"], "所有掩码，保留"),
        (["结束词元，\nLatin"], "结束词元，Latin"),
        (["所有词元的", "值", "\n都会改变"], "所有词元的值都会改变"),
        (["加上\n", "（见下）"], "加上（见下）"),
        (["用 AdamW\n训练，以及\nGRU"], "用 AdamW\n训练，以及\nGRU"),
        (["two\nlines"], "two\nlines"),
    ],
)
def test_the_end_of_a_line_is_no_space_between_chinese_characters(pieces, expected):
    found = lines.joined(pieces)
    assert len(found) == len(pieces) and "".join(found) == expected


def test_of_two_ends_of_lines_the_right_one_is_dropped():
    document = new_document("page")
    paragraph = nodes.paragraph()
    for piece in ("掩码", "\n", "(mask)，", "\n", "提示"):
        paragraph += nodes.Text(piece)
    document += paragraph
    lines.join_lines(SimpleNamespace(config=SimpleNamespace(zoo_language="zh")), document)
    assert document.astext() == "掩码\n(mask)，提示"


def test_code_keeps_its_lines_and_english_pages_stay_as_they_are():
    for language, expected in (("zh", "一行二行"), ("en", "一行\n二行")):
        document = new_document("page")
        document += nodes.paragraph("", "一行\n二行")
        document += nodes.literal_block("", "一行\n二行")
        lines.join_lines(SimpleNamespace(config=SimpleNamespace(zoo_language=language)), document)
        assert [child.astext() for child in document] == [expected, "一行\n二行"]
