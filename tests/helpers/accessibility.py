"""Checks the accessibility of a page in the browser."""

from axe_playwright_python.sync_playwright import Axe

# Axe would fetch the style sheets, which a file may not.
OPTIONS = {"resultTypes": ["violations"], "preload": False}
# The theme shows its link to the top while a reader scrolls up.
SHOW_LINK_TO_TOP = "document.documentElement.classList.add('show-back-to-top')"


def violations(page, impacts=("minor", "moderate", "serious", "critical")):
    """The rules of these impacts that a page violates, each with the start of the HTML of up to three elements."""
    page.evaluate(SHOW_LINK_TO_TOP)
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in impacts
    ]
