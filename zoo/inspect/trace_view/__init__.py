"""A trace as a person sees it: a view made of numbers, the page and the files of it."""
