"""The page of the docs where a person chooses models: by the keyboard, with the choice in the address."""

import subprocess
import sys

import pytest

from tests.helpers.site_of_docs import SITE
from zoo.describe import describe
from zoo.host.registry import default_registry

PAGES = ("compare/index.html", "zh/compare/index.html")
PAGE = SITE / PAGES[0]


def chosen(page):
    return [box.input_value() for box in page.locator("[role=combobox]").all()]


def shown(page):
    page.wait_for_selector(".picture")
    return page.locator(".pictures figcaption b").all_text_contents()


def at(page, hash):
    """The same page at another address, loaded anew."""
    page.goto(f"{PAGE.as_uri()}{hash}")
    page.reload()
    page.wait_for_selector(".picture")


def test_a_model_is_chosen_by_the_keyboard(visit):
    page = visit(PAGE)
    assert shown(page) == chosen(page) == ["llama:8b", "mixtral:8x7b"]
    box = page.locator("[role=combobox]").nth(1)
    box.click()
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.type("gpt-oss 20")
    page.keyboard.press("ArrowDown")
    active = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert active.text_content().startswith("gpt-oss:20b") and active.get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.querySelectorAll('.pictures figcaption b')[1].textContent === 'gpt-oss:20b'"
    )
    assert "#llama:8b,gpt-oss:20b&" in page.url
    page.go_back()
    page.wait_for_function(
        "document.querySelectorAll('.pictures figcaption b')[1].textContent === 'mixtral:8x7b'"
    )
    assert chosen(page) == ["llama:8b", "mixtral:8x7b"]


def test_escape_leaves_the_choice_as_it_was(visit):
    page = visit(PAGE)
    shown(page)
    page.locator("[role=combobox]").first.click()
    page.keyboard.type("no such model")
    assert page.locator("[role=listbox]").first.is_hidden()
    page.keyboard.press("Escape")
    assert chosen(page) == ["llama:8b", "mixtral:8x7b"]


def test_what_is_typed_while_a_model_is_read_is_kept(visit):
    page = visit(PAGE)
    shown(page)
    page.evaluate(
        "() => { const load = zooCompare.load, released = new Promise((done) => { window.release = done; });"
        " zooCompare.load = async (file) => { await released; return load.call(zooCompare, file); } }"
    )
    page.locator("[role=combobox]").nth(0).click()
    page.keyboard.type("mamba:2.8b")
    page.keyboard.press("Enter")
    assert chosen(page) == ["mamba:2.8b", "mixtral:8x7b"]
    page.locator("[role=combobox]").nth(1).click()
    page.keyboard.type("gpt-oss 20")
    assert shown(page) == ["llama:8b", "mixtral:8x7b"]  # it is still being read
    page.evaluate("release()")
    page.wait_for_function("document.querySelector('.pictures figcaption b').textContent === 'mamba:2.8b'")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.querySelectorAll('.pictures figcaption b')[1].textContent === 'gpt-oss:20b'"
    )
    assert chosen(page) == shown(page) == ["mamba:2.8b", "gpt-oss:20b"]


def test_models_are_added_up_to_four_and_removed(visit):
    page = visit(PAGE)
    shown(page)
    for count in (3, 4):
        page.click(".add")
        page.wait_for_function(f"document.querySelectorAll('[role=combobox]').length === {count}")
    assert page.locator(".add").count() == 0 and len(set(chosen(page))) == 4
    for count in (3, 2, 1):
        page.locator(".remove").last.click()
        page.wait_for_function(f"document.querySelectorAll('[role=combobox]').length === {count}")
    assert page.locator(".remove").count() == 0
    assert page.locator("section.about").count() == 1


def test_the_address_holds_the_choice_and_the_settings(visit):
    page = visit(PAGE)
    at(page, "#deepseek-v3,llama:8b&context=32768&weights=4&cache=8-bit")
    assert shown(page) == ["deepseek-v3:671b", "llama:8b"]
    assert page.input_value("input.context") == "32768"
    registry = default_registry()
    for fact in ("weights.chosen", "flops.decode"):
        sheets = [describe(name, registry).sheet(registry, 32768, "4") for name in ("deepseek-v3", "llama")]
        cells = page.locator(f'.facts tr[data-fact="{fact}"] td').all_text_contents()
        assert cells == [sheet[fact].text for sheet in sheets]
    page.fill("input.context", "65536")
    assert page.evaluate("location.hash") == (
        "#deepseek-v3:671b,llama:8b&context=65536&weights=4&cache=8-bit"
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_address_holds_the_switches(visit, name):
    page = visit(SITE / name)
    page.goto(f"{(SITE / name).as_uri()}#llama,mixtral&first&structure")
    page.reload()
    page.wait_for_selector(".picture")
    first, structure = (page.locator(f"input[name={one}]") for one in ("first", "structure"))
    assert first.is_checked() and structure.is_checked()
    assert page.locator('.facts tr[data-fact="vocabulary"]').is_hidden()
    structure.focus()
    page.keyboard.press("Space")
    assert page.locator('.facts tr[data-fact="vocabulary"]').is_visible()
    assert page.evaluate("location.hash").endswith("&cache=16-bit&first")
    first.focus()
    page.keyboard.press("Space")
    assert page.evaluate("location.hash").endswith("&cache=16-bit")
    assert page.locator('.facts tr[data-fact="heads"]').is_visible()


def test_another_address_sets_the_switches_anew(visit):
    page = visit(PAGE)
    at(page, "#llama,mixtral&structure")
    page.evaluate("location.hash = '#llama,mixtral&first'")
    page.wait_for_function("document.querySelector('input[name=first]').checked")
    assert not page.locator("input[name=structure]").is_checked()


def test_the_switches_stay_when_another_model_is_chosen(visit):
    page = visit(PAGE)
    at(page, "#llama,mixtral&first&structure")
    page.locator("[role=combobox]").first.click()
    page.keyboard.type("mistral")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.querySelector('.pictures figcaption b').textContent.startsWith('mistral')"
    )
    label = page.locator(".switches label").first.inner_text()
    assert label == "Only what differs from mistral:7b" and page.locator("input[name=first]").is_checked()


def test_an_address_that_names_nothing_shows_the_page(visit):
    page = visit(PAGE)
    at(page, "#no-such-model&context=-3&weights=seven")
    assert shown(page) == ["llama:8b", "mixtral:8x7b"] and page.input_value("input.context") == "4096"


def test_a_box_leads_to_the_page_of_its_file(visit):
    page = visit(PAGE)
    shown(page)
    page.locator('.block[data-block="feedforward/moe"]').first.click()
    link = page.locator("dialog .place a").first.get_attribute("href")
    path, _, line = link.partition("#")
    target = (PAGE.parent / path).resolve()
    assert target.is_file() and f'id="{line}"' in target.read_text()


def test_without_scripts_the_facts_are_text(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(PAGE.as_uri())
    still = page.locator(".zoo-compare-still")
    assert "key/value heads" in still.text_content() and still.is_visible()
    assert "Vocabulary of 32,000 instead of 128,256." in still.text_content()
    context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_choice_of_four_fits_the_window(visit, name, width):
    page = visit(SITE / name, width=width, scheme="dark")
    page.goto(f"{(SITE / name).as_uri()}#transformer:base,llama:8b,deepseek-v3:671b,mamba:2.8b")
    page.wait_for_function("document.querySelectorAll('.picture').length === 4")


CONF = """
import sys
sys.path.insert(0, {docs!r})
extensions = ["myst_parser", "building.language_switch", "building.compare", "building.marked"]
html_theme = "basic"
"""


def built(folder, text):
    """What Sphinx says of a site of one page, and the page."""
    (folder / "in").mkdir()
    (folder / "conf.py").write_text(CONF.format(docs=str(SITE.parents[1])))
    (folder / "in" / "index.md").write_text(text)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-c",
        str(folder),
        str(folder / "in"),
        str(folder / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    return done, folder / "out" / "index.html"


@pytest.mark.nightly  # the pages of pairs hold such ones; each test starts Sphinx
def test_a_page_may_hold_comparisons_of_its_own(visit, tmp_path):
    text = "# Two\n\n<!-- compare: gpt2 gpt2-postln -->\n<!-- end -->\n\n# One\n\n<!-- compare: mistral -->\n<!-- end -->\n"
    done, path = built(tmp_path, text)
    assert done.returncode == 0, done.stderr
    page = visit(path)
    page.wait_for_function("document.querySelectorAll('.picture').length === 3")
    assert shown(page) == ["gpt2:small", "gpt2-postln:small", "mistral:7b"]
    assert page.locator("[role=combobox]").count() == 0
    first = page.locator(".zoo-compare").first
    first.locator("select.weights").select_option("4")
    labels = page.locator('tr[data-fact="weights.chosen"] .label').all_text_contents()
    assert labels == ["weights, 4 bits", "weights, bfloat16"]
    assert "#" not in page.url


@pytest.mark.nightly
def test_a_model_that_is_not_known_stops_the_build(tmp_path):
    done, _ = built(tmp_path, "# Two\n\n<!-- compare: no-such-model -->\n<!-- end -->\n")
    assert done.returncode != 0 and "no-such-model" in done.stderr
