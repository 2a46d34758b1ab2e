"""Self-contained pages: one HTML file with its pictures, styles and scripts inside. Imports no mlx."""
