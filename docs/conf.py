"""How Sphinx builds these pages: in English from this folder, and with `-t zh` in Chinese from `zh`."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

chinese = tags.has("zh")  # noqa: F821  (Sphinx gives it)
project = "zoo"
author = "The zoo authors"
copyright = f"2026, {author}"
version = release = installed("mlx-zoo")
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
html_static_path = ["_static"]
html_copy_source = False
html_use_index = False
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
zoo_generated = ["architectures/"]  # pages that are written when the docs are built, in both languages
