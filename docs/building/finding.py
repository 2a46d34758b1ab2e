"""The role `{finding}`: what the lab measured for a claim, as {finding}`experts 1 seen`."""

from __future__ import annotations

from typing import Any

from building import lab_records
from building.directive import ZooRole


class FindingRole(ZooRole):
    """`EXPERIMENT NUMBER VERDICT`: what was measured for a claim, whose verdict must be the one that the page tells of."""

    def said(self) -> str:
        name, number, verdict = self.text.split(maxsplit=2)
        words = lab_records.finding(name, int(number), verdict)
        return lab_records.in_chinese(words) if self.language == "zh" else words


def setup(app: Any) -> None:
    """Add the role."""
    app.add_role("finding", FindingRole())
