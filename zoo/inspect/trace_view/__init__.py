"""A trace as a person sees it: a view made of numbers, the page, plots and files of it."""
