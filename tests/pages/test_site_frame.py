"""What is around each page: its head, the ways to the other language and the repository, the theme's words, the 404."""

import re
import struct
from pathlib import Path
from urllib.parse import urljoin

import pytest
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[2] / "docs"
PARTS = [
    "head",
    "language_switch",
    "navigation",
    "not_found",
    "page_link",
    "repository",
    "theme",
    "theme_words",
]
PAGES = {
    "index": "# zoo\n\nA zoo of models, each of them small. More.\n\n```{toctree}\ntour/tokens\nplugins/reference\n```\n",
    "tour/tokens": "# Tokens\n\nText in \\<pieces> & more.\n\n## One\n\n### Two\n\n## Three\n",
    "plugins/reference": "# Run\n\n$x$ is a formula, and no description.\n\n[Tokens](../tour/tokens.md)\n",
}
SITE, CODE = "https://example.org/zoo/", "https://example.org/code"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds a small site: a function of its language and settings that gives its folder."""
    sites = {}

    def build(language, **settings):
        key = (language, *sorted(settings.items()))
        if key not in sites:
            folder = tmp_path_factory.mktemp(language)
            for name, text in PAGES.items():
                path = folder / "pages" / f"{name}.md"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            sidebars = ["sidebar/search.html", "sidebar/language.html", "sidebar/navigation.html"]
            overrides = {
                "project": "zoo",
                "extensions": ["myst_parser", *(f"building.{part}" for part in PARTS)],
                "language": "zh_CN" if language == "zh" else "en",
                "html_theme": "furo",
                "html_copy_source": False,
                "myst_enable_extensions": ["dollarmath"],
                "html_favicon": str(DOCS / "_static" / "favicon.svg"),
                "html_sidebars": {"**": sidebars},
                "templates_path": [str(DOCS / "_templates")],
                "zoo_language": language,
                "zoo_generated": ["search"],
                **settings,
            }
            app = Sphinx(
                folder / "pages", None, folder / "html", folder / "trees", "html", overrides,
                status=None, warning=None, warningiserror=True,
            )  # fmt: skip
            app.build()
            sites[key] = folder / "html"
        return sites[key]

    return build


def read(folder, page):
    return (folder / f"{page}.html").read_text(encoding="utf-8")


def tagged(html):
    """The content of each meta tag by its name."""
    return dict(re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)">', html))


def test_a_page_says_what_it_is_to_previews_of_links(built):
    found = tagged(read(built("en"), "tour/tokens"))
    assert found["description"] == found["og:description"] == "Text in &lt;pieces&gt; &amp; more."
    assert found["og:title"] == "Tokens" and found["og:locale"] == "en_US"
    assert found["og:image"] == "../_static/card.png" and "og:url" not in found


def test_a_description_is_words_and_short(built):
    assert tagged(read(built("en"), "index"))["description"] == "A zoo of models, each of them small. More."
    assert "formula" not in read(built("en"), "plugins/reference").partition("</head>")[0]
    from building.head import shortened

    assert shortened("One sentence. Another that is long.", 30) == "One sentence."
    assert shortened("words " * 20, 30) == "words words words words…"
    assert shortened("没有空格的一段文字" * 5, 12) == "没有空格的一段文字没有…"


def test_with_the_sites_address_previews_have_whole_addresses(built):
    english = read(built("en", html_baseurl=SITE), "tour/tokens")
    assert tagged(english)["og:image"] == f"{SITE}_static/card.png"
    assert tagged(english)["og:url"] == f"{SITE}tour/tokens.html"
    assert f'<link rel="alternate" hreflang="zh-CN" href="{SITE}zh/tour/tokens.html">' in english
    chinese = read(built("zh", html_baseurl=f"{SITE}zh/"), "tour/tokens")
    assert tagged(chinese)["og:image"] == f"{SITE}_static/card.png"
    assert f'<link rel="alternate" hreflang="en" href="{SITE}tour/tokens.html">' in chinese


def test_the_repository_is_linked_on_every_page_where_one_is_named_and_nowhere_else(built):
    for language, name in (("en", "Repository"), ("zh", "代码仓库")):
        for page in PAGES:
            link = f'<a class="zoo-repository" href="{CODE}">{name}</a>'
            assert link in read(built(language, zoo_repository=CODE), page)
            assert "zoo-repository" not in read(built(language), page)


def test_a_repository_is_what_the_metadata_names():
    from building.project_urls import REPOSITORY, SITE, project_url

    lines = [
        "Source Code, https://example.org/a",
        "Docs, https://example.org/b",
        "Funding, https://example.org/c",
    ]
    assert project_url(lines, REPOSITORY) == "https://example.org/a"
    assert project_url(lines, SITE) == "https://example.org/b"
    assert project_url(["repository , https://example.org/d", *lines], REPOSITORY) == "https://example.org/d"
    assert project_url(None, REPOSITORY) == project_url(["Funding, https://example.org"], REPOSITORY) == ""


def test_a_page_in_one_language_says_so_beside_the_way_to_the_other(built):
    both, only = read(built("en"), "tour/tokens"), read(built("en"), "plugins/reference")
    assert 'href="../zh/tour/tokens.html" lang="zh-CN"' in both and "仅有英文" not in both
    assert 'href="../zh/plugins/index.html" lang="zh-CN"' in only
    assert '<span lang="zh-CN">本页仅有英文</span>' in only


def test_a_link_from_chinese_to_an_english_page_is_marked(built):
    from building.page_link import marked, with_links

    text = "见[教程](../plugins/hooks.md#the-package)和[词元](tour/tokens.md)。"
    leaving = '<a class="reference internal" href="../plugins/hooks.html#the-package">教程'
    assert with_links("paths", text) == f"见{leaving}</a>和[词元](tour/tokens.md)。"
    assert marked("paths", with_links("paths", text)).startswith(
        f'见{leaving[:-3]} hreflang="en">教程<span class="zoo-english">（英文）</span></a>'
    )
    assert 'href="../tour/tokens.html"' in read(built("en"), "plugins/reference")
    with pytest.raises(ValueError, match=r"there is no page \.\./nowhere"):
        with_links("paths", "[x](../nowhere.md)")


def test_every_link_from_chinese_to_an_english_page_is_marked(built):
    from building.page_link import marked

    mark = '<span class="zoo-english">（英文）</span>'
    assert marked("tour/a", '<a class="x" href="../../lab/no-such.html#b">实验</a>') == (
        f'<a class="x" href="../../lab/no-such.html#b" hreflang="en">实验{mark}</a>'
    )
    assert mark not in marked("index", '<a href="../plugins/hooks.html">钩子（英文）</a>')
    for kept in (
        '<a href="../compare/index.html">对比</a>',
        '<a href="../../code/zoo/weights.html#line-3">代码</a>',
        '<a href="https://example.org/a.html">外部</a>',
    ):
        assert marked("tour/a", kept) == kept
    assert (
        marked("tour/a", '<a href="../../compare/pairs.html">成对（英文）</a>')
        == '<a href="../compare/pairs.html">成对</a>'
    )
    assert marked("tour/a", "<article><a href='x'></a></article>") == "<article><a href='x'></a></article>"


def test_the_words_of_the_theme_are_chinese(built):
    page = read(built("zh"), "tour/tokens")
    seen = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", " ", page.partition("<body>")[2], flags=re.DOTALL)
    said = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', seen)
    words = " ".join([*said, re.sub(r"<[^>]*>", " ", seen)])
    names = [
        *("English", "Sphinx", "Furo", "Tokens", "Text in", "Run", "pradyunsg", "zoo", "One", "Two", "Three")
    ]
    for name in (*names, "more", "Author", "documentation", "lt", "gt", "amp", "pieces", "copy", "s"):
        words = re.sub(rf"\b{name}\b", " ", words)
    assert re.findall(r"[A-Za-z]{2,}", words) == []
    assert "本页内容" in page and "跳到正文" in page and "下一页" in page


@pytest.mark.parametrize(("base", "root"), [("", "/"), (SITE, "/zoo/"), ("https://example.org", "/")])
def test_the_404_leads_back_from_any_folder(built, base, root):
    page = read(built("en", html_baseurl=base), "404")
    links = re.findall(r'(?:href|action)="([^"]+)"', page)
    for asked in ("nothing.html", "tour/nothing.html", "zh/tour/far/away/nothing"):
        found = [urljoin(f"https://example.org{root}{asked}", link) for link in links]
        assert f"https://example.org{root}index.html" in found
        assert f"https://example.org{root}zh/index.html" in found
        assert all(one.startswith(f"https://example.org{root}") and ".." not in one for one in found)
    assert "<script" not in page and "stylesheet" not in page


def test_the_card_is_a_picture_of_the_size_that_previews_have():
    from building.card import draw
    from building.head import CARD_SIZE

    made = draw()
    assert made[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", made[16:24]) == CARD_SIZE
    assert len(made) < 100_000


def test_code_in_sentences_and_signatures_has_few_elements():
    from building.code_pages import plain_literals, uncoloured

    words = '<code class="docutils literal notranslate"><span class="pre">a</span> <span class="pre">&lt;b</span></code>'
    assert plain_literals(words) == '<code class="literal">a &lt;b</code>'
    signature = '<span class="n"><span class="pre">rows</span></span><span class="k">def</span>'
    assert uncoloured(plain_literals(signature)) == 'rows<span class="k">def</span>'
