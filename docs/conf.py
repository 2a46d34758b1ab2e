"""How Sphinx builds these pages: in English from this folder, and with `-t zh` in Chinese from `zh`."""

import os
import sys
from importlib.metadata import metadata
from pathlib import Path

# Pages are read by a process a core: with a thread a core, too, these would only wait for each other.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parent))

from building.project_urls import repository_url, site_url  # noqa: E402

chinese = tags.has("zh")  # noqa: F821  (Sphinx gives it)
project = "zoo"
author = "The zoo authors"
copyright = f"2026, {author}"
about = metadata("mlx-zoo")
version = release = about["Version"]
language = "zh_CN" if chinese else "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "building"]
exclude_patterns = ["_build", "building", "figures"]
if not chinese:
    exclude_patterns += ["zh", "plugins/examples"]  # another build's, and shown by pages
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # of docstrings
python_maximum_signature_line_length = 88
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "zoo"
html_favicon = "_static/favicon.svg"
# The address of the site, where it is known: previews of links and the page for 404 need it.
html_baseurl = site_url()
if html_baseurl:
    html_baseurl = f"{html_baseurl.rstrip('/')}/{'zh/' if chinese else ''}"
zoo_repository = repository_url()
html_static_path = ["_static"]
html_copy_source = False
html_use_index = False
html_search_scorer = str(Path(__file__).parent / "building" / "search_scorer.js")
html_show_sourcelink = False
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
zoo_language = "zh" if chinese else "en"
zoo_generated = ["architectures/", "search"]  # pages that both languages have without a source
