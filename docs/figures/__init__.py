"""The figures of the docs: one file each, with `draw(language)`."""
