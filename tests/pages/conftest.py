"""A browser for tests of pages; these run with `make pages`, and not with the other tests."""

import base64
import functools
import shutil
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import numpy as np
import pytest
from building.live import export
from playwright.sync_api import sync_playwright

from tests.helpers.invoked import invoke
from tests.helpers.pairwise import pytest_collection_modifyitems  # noqa: F401
from tests.helpers.site_of_docs import SITE

# The shell has no window of its own to paint: the tests take less than half of the time with it.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def launch():
    """Start the Chromium of this machine with these flags, too; without one the tests fail."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.exit(f"no browser: put one of {', '.join(BROWSERS)} on the PATH", returncode=1)
    with sync_playwright() as playwright:
        yield lambda *flags: playwright.chromium.launch(executable_path=found, args=[*FLAGS, *flags])


@pytest.fixture(scope="session")
def browser(launch):
    chromium = launch()
    yield chromium
    chromium.close()


@pytest.fixture
def visit(browser):
    """Open a file or an address in a window of a size; a test fails when the page wrote an error or is wider than its window.

    `expected` are the beginnings of errors that the test provokes.
    """
    opened = []

    def go(path, width=1280, height=900, scheme="light", expected=(), **more):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        page.set_default_timeout(120_000)  # ms: the machine may be busy
        errors = []

        def note(message):
            if message.type == "error" and not message.text.startswith(expected):
                errors.append(message.text)

        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path if isinstance(path, str) else path.as_uri())
        opened.append((page, errors))
        return page

    yield go
    for page, errors in opened:
        assert errors == [], page.url
        wide, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide <= room, f"{page.url}: {wide} pixels wide in a window of {room}"
        page.close()


@pytest.fixture(scope="session")
def served():
    """The address of the site on this machine: a page from a file may load no modules, and read no other file."""
    with serving(SITE) as address:
        yield address


@contextmanager
def serving(folder):
    """Serve a folder on this machine, at the address that is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line on the terminal for each; nothing for the icon that a browser asks for by itself."""

    def do_GET(self):
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """The page that `zoo compare --html` writes of models, written once."""

    @functools.cache
    def write(names):
        path = tmp_path_factory.mktemp("compared") / "page.html"
        done = invoke(path.parent, ["compare", *names, "--html", str(path)])
        assert done.returncode == 0, done.stderr
        return path

    return write


@pytest.fixture
def figure():
    """A figure's module by its name."""
    return lambda name: import_module(f"figures.{name}")


@pytest.fixture(scope="session")
def live_site(tmp_path_factory):
    """The scripts and models of the live pages in a folder, for which no docs need to be built, and the address that serves it."""
    folder = tmp_path_factory.mktemp("live")
    export(folder)
    (folder / "index.html").write_text("<!doctype html><link rel=icon href='data:,'><title>live</title>")
    with serving(folder) as address:
        yield folder, f"{address}/"


START = """async () => {
  const engine = await import("/engine.js"), models = {};
  const base64 = (x) => {
    let bytes = "";
    for (const byte of new Uint8Array(x.buffer, x.byteOffset, x.byteLength)) bytes += String.fromCharCode(byte);
    return btoa(bytes);
  };
  const plain = (x) => ArrayBuffer.isView(x) ? {typed: x.constructor.name, base64: base64(x)} : Array.isArray(x) ? x.map(plain)
    : x instanceof Map ? plain(Object.fromEntries(x))
    : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([key, value]) => [key, plain(value)])) : x;
  window.start = async (name, body, given) => {
    const model = (models[name] ??= await engine.loadModel(`models/${name}`));
    return plain(await new Function("model", "given", "engine", `return (async () => {${body}})()`)(model, given, engine));
  };
}"""


@pytest.fixture(scope="session")
def live_run(browser, live_site):
    """Run the body of an asynchronous function of `model`, `given` and `engine` in a page; typed arrays come back as lists.

    They come in base64, since the browser takes seconds to hand over a list of a million numbers.

    The first argument is the model's name, the second the body; the keywords are `given`.
    """
    page = browser.new_page()
    page.goto(live_site[1])
    page.evaluate(START)
    call = "([name, body, given]) => start(name, body, given)"
    yield lambda name, body, **given: _as_lists(page.evaluate(call, [name, body, given]))
    page.close()


def _as_lists(value):
    """The same value with lists instead of typed arrays."""
    if isinstance(value, list):
        return [_as_lists(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"typed", "base64"}:
        dtype = value["typed"].removesuffix("Array").lower()
        return np.frombuffer(base64.b64decode(value["base64"]), dtype).tolist()
    return {key: _as_lists(each) for key, each in value.items()}
