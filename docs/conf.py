"""How Sphinx builds these pages."""

from importlib.metadata import version as installed

project = "zoo"
author = "The zoo authors"
version = release = installed("mlx-zoo")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "zoo"
exclude_patterns = ["_build", "plugins/examples/*/*"]
myst_heading_anchors = 3
