"""The style sheet of SVG diagrams: light and dark, one accent colour. Imports no mlx.

A page that has its own choice of theme sets the custom properties on `.zoo-diagram` itself.
"""

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2430",
    "quiet": "#5a6272",
    "line": "#868e9c",
    "edge": "#b9c0cc",
    "box": "#f3f5f8",
    "cell": "#ffffff",
    "frame": "#fafbfc",
    "accent": "#a83a08",
    "tint": "#fdf0e8",
}
DARK = {
    "ground": "#14171d",
    "ink": "#e6e9ef",
    "quiet": "#a2abba",
    "line": "#7a8494",
    "edge": "#454d5b",
    "box": "#232832",
    "cell": "#181c23",
    "frame": "#191d24",
    "accent": "#ffab7d",
    "tint": "#3a261b",
}


def properties(colours: dict[str, str]) -> str:
    """The colours as custom properties."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


# How everything is drawn, in the colours that the properties give.
RULES = """
.zoo-diagram{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
.zoo-diagram .ground{fill:var(--ground)}
.zoo-diagram text{fill:var(--ink)}
.zoo-diagram .name{font-weight:700}
.zoo-diagram .summary,.zoo-diagram .note,.zoo-diagram .label,.zoo-diagram .stack{fill:var(--quiet)}
.zoo-diagram .stack,.zoo-diagram .title,.zoo-diagram .count{font-weight:600}
.zoo-diagram .input .title,.zoo-diagram .output .title,.zoo-diagram .memory .title{fill:var(--quiet)}
.zoo-diagram .box{fill:var(--box);stroke:var(--edge)}
.zoo-diagram .norm .box{fill:var(--ground)}
.zoo-diagram .norm .title{font-weight:500}
.zoo-diagram .frame rect{fill:var(--frame);stroke:var(--edge)}
.zoo-diagram .cell rect,.zoo-diagram .cell circle{fill:var(--cell);stroke:var(--edge);stroke-width:.8}
.zoo-diagram .flow,.zoo-diagram .plus{fill:none;stroke:var(--line);stroke-width:1.4}
.zoo-diagram .tip{fill:var(--line)}
.zoo-diagram .sum{fill:var(--ground);stroke:var(--line);stroke-width:1.4}
.zoo-diagram .memory .flow{stroke-dasharray:5 3}
.zoo-diagram .differs>.box,.zoo-diagram .differs>rect,.zoo-diagram .differs>.sum{stroke:var(--accent);stroke-width:2}
.zoo-diagram .differs>.box,.zoo-diagram .cell.differs rect{fill:var(--tint)}
.zoo-diagram .frame.differs>rect{fill:var(--frame)}
.zoo-diagram .cell.differs rect,.zoo-diagram .cell.differs circle{stroke:var(--accent);stroke-width:2}
.zoo-diagram .cell.differs text{font-weight:600}
.zoo-diagram .residual.differs .flow,.zoo-diagram .residual.differs .plus{stroke:var(--accent);stroke-width:2}
.zoo-diagram .residual.differs .tip{fill:var(--accent)}
.zoo-diagram .differs>.title,.zoo-diagram .differs>.count,.zoo-diagram .differs>.label,.zoo-diagram .cell.differs text,
.zoo-diagram text.differs{fill:var(--accent)}
.zoo-diagram text.differs{font-weight:600}
"""

STYLE = (
    f".zoo-diagram{{{properties(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{.zoo-diagram{{{properties(DARK)}}}}}"
    f"{RULES}"
)
