"""Self-contained pages: one HTML file with its pictures, styles and scripts inside. Imports no mlx."""

from zoo.describe.pages.comparison import compare_page
from zoo.describe.pages.template import page

__all__ = ["compare_page", "page"]
