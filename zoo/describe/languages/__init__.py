"""Catalogues of texts: a folder a language, of TOML files whose keys are English and whose values are the language's own."""
