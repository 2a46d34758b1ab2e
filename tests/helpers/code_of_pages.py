"""The code and the commands of a page, without what they print."""

from building.outputs import MARKED
from building.page_package import CODE


def run(text):
    """The commands and the shown examples of a page; what is hidden or printed as Markdown has words of its language."""
    found = []
    for match in MARKED.finditer(text):
        if match["kind"] == "console":
            lines = [line for line in match["shown"].splitlines() if line.startswith("$ ")]
            found.append(("console", match["options"].strip(), lines))
        elif match["kind"] == "python" and match["shown"] is not None:
            code = match["shown"].partition("```python\n")[2].partition("\n```\n")[0]
            found.append(("python", match["options"].strip(), code.splitlines()))
    return found + [("code", title, body.splitlines()) for title, body in CODE.findall(text)]
