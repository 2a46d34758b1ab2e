"""What a page in the browser breaks of the rules of accessibility."""

from axe_playwright_python.sync_playwright import Axe

# Axe would fetch the style sheets, which a file may not.
OPTIONS = {"resultTypes": ["violations"], "preload": False}
# The theme shows its link to the top while a reader scrolls up.
SHOW_LINK_TO_TOP = "document.documentElement.classList.add('show-back-to-top')"


def violations(page, impacts=("minor", "moderate", "serious", "critical")):
    """The rules that a page breaks with one of these impacts, each with the beginnings of up to three places."""
    page.evaluate(SHOW_LINK_TO_TOP)
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in impacts
    ]
