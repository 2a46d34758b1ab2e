"""Self-contained pages: one HTML file with its pictures, styles and scripts inside. Imports no mlx."""

from zoo.insight.pages.compare import compare_page
from zoo.insight.pages.page import page

__all__ = ["compare_page", "page"]
