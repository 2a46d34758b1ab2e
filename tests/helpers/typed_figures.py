"""Figures that somebody typed into a page: digits in its prose, outside of what is generated, cited or a name."""

import re

from building.page_parts import PARTS

# Directives whose text is prose: their bodies are read like the page. The body of any other is code, or computed.
PROSE = {
    "note",
    "tip",
    "hint",
    "warning",
    "important",
    "admonition",
    "seealso",
    "figure",
    "list-table",
}
PROSE |= {"dropdown", "epigraph", "table", "container"}

FENCE = re.compile(
    r"^\s*(?P<mark>`{3,}|~{3,}|:{3,})\s*(?:\{(?P<directive>[\w:-]+)\}|(?P<language>[\w+-]*))(?P<title>.*)$"
)
OPTION = re.compile(r"^\s*:[\w-]+:.*$")

# What is no prose within a line, or a citation: replaced by a blank, in this order.
NOT_PROSE = [
    re.compile(pattern, re.DOTALL | re.MULTILINE)
    for pattern in (
        r"\A---\n.*?\n---\n",  # front matter
        r"<!-- (?:architectures|models|measured) -->.*?<!-- end -->",  # tools/readme.py
        # tools/page_outputs.py
        r"<!-- (?:py|fact|finding): [^\n]*?<!-- end -->",
        r"^<!-- run python (?:folder )?(?:markdown|output-only)[^\n]*\n.*?^<!-- end -->",
        rf"^<!-- (?:{'|'.join(PARTS)}): [^\n]*\n.*?^<!-- end -->",
        r"<!--.*?-->",
        r"\$\$.*?\$\$",
        r"\{[\w:-]+\}(`+)(?!`).*?(?<!`)\1(?!`)",  # a role
        r"(`+)(?!`).*?(?<!`)\1(?!`)",  # inline code
        r"(?<![\\$])\$(?!\s)[^$\n]+?(?<!\s)\$",
        r"!?\[[^\]]*\]\((?:https?://|mailto:)[^)]*\)(?:,\s(?:19|20)\d\d)?",  # a source outside, with its words
        r"\]\([^)]*\)",  # where a link within the pages leads
        r"^\[[^\]]+\]: .*?$",
        r"<https?://[^>]*>|https?://\S+",
        r"\[\^[\w-]+\]",
        r"</?[a-zA-Z][^>]*>|&#?\w+;",
        r"\{#[\w-]+\}|^\([\w-]+\)=$",
        r"\((?:[A-Z]|1|…)(?:, (?:[A-Z]|1|…))+\)",  # a shape
        r"(?<![\w.])[A-Za-z] [+−-] 1(?![\w.])",  # T − 1
        r"(?<=\n\n)(?: {4}(?! *(?:[-*+]|\d+\.) ).*?\n)+",  # indented code
    )
]

# Names that have digits in them. A figure beside a name ("GPT-2 has 12 layers") is still found.
NAMES = [
    r"(?:Distil)?GPT-?[\dJ](?:\.\d)?(?:-(?:small|medium|large|XL|\d+[MB]))?",
    r"(?:Code)?L[Ll][Aa]?[Mm][Aa][- ]?\d(?:\.\d)?(?:[- ]\d+B)?",
    r"Mi[sx]tral[- ](?:\d+x)?\d+B(?:[- ]v\d\.\d)?|Ministral \d",
    r"Qwen ?\d(?:\.\d)?(?:-MoE|(?:-Next)?-\d+(?:\.\d+)?B(?:-A\d+(?:\.\d+)?B)?)?",
    r"Gemma[- ]?\d(?:[- ]\d+B)?|E\dB|Phi-\d|Falcon-(?:H1(?:-\d\.\dB)?|\d+B)|InternLM\d?|RWKV-\d|OLMo ?\d|Kimi[- ](?:K\d|Linear-\d+B)|MiniMax-\d\d|ChatGLM[-\d]*\w*|GLM-\d+|LFM\d|SmolLM\d|Command R7B|Cohere \d",
    r"(?:DeepSeek[- ])?V\d(?:\.\d)?(?:-\d+B)?|DeepSeek-R1|Moonlight-16B|gpt-oss-\d+b|LLaDA-8B",
    r"(?:m|By)?T5(?: 1\.1|-\w+)?|M2M-?100|NLLB-200|BERT-(?:base|large)|MiniLM-L\d+|Mamba-?\d(?:\.\d)?B?|WMT ?\d\d",
    r"(?:b?float|u?int|bf|fp|FP|BF|F|mxfp|nvfp|NVFP|MXFP)\d+|E\dM\d|(?:Q|IQ|TQ|K)\d(?:_[\dKSML]+)*",
    r"UTF-\d+|ISO[- ]\d+(?:-\d+)?|SHA-?\d+|sha\d+|RFC \d+|base64|bloc97|(?:8|16|32|64)-bit|(?:16|32|64) (?:bits?\b|位)|x86-64|x86_64|arm64|M\d(?: (?:Pro|Max|Ultra))?|H200|H100",
    r"Python 3\.\d+(?:\.\d+)?|bash \d\.\d|Apache-2\.0|CC BY(?:-SA)? \d\.\d|MIT|v\d+(?:\.\d+)*|HTTP/\d(?:\.\d)?|HTML5|SHA256",
    r"L[12]\b(?= (?:norm|regularisation))|[ab]16|t5|gpt2|gemma2|llama3|qwen\d|mamba2|word2vec|seq2seq|axe-core \d(?:\.\d+)*",
    r"(?:the )?2017 Transformer|Transformer \(2017\)",
]
# What a number that looks like a year may count.
UNITS = "tokens?|steps?|layers?|heads?|bytes?|parameters?|characters?|texts?|runs?|times|words?|rows?|[kMG]?B\\b|词元|步|层|个|次"
# Where a source is cited: its year, or the place in it.
CITED = [
    r"arXiv:\d{4}\.\d{4,5}(?:v\d)?",
    r"(?:et al\.|[A-Z][\w’'-]+(?: and [A-Z][\w’'-]+)?),? \(?(?:19|20)\d\d[a-z]?\)?",
    r"(?:[一-鿿]|[A-Z]\w+|等人?)\s?[（(](?:19|20)\d\d[a-z]?(?: 年)?[)）]|(?:19|20)\d\d 年",
    r"(?:[Ii]n|[Ss]ince|[Ff]rom|[Uu]ntil|[Oo]f|[Tt]he) (?:19|20)[0-2]\d\b(?! ?(?:" + UNITS + "))",
    r"^(?:19|20)[0-2]\d(?= (?:model|paper|Transformer))",
    r"\w+ (?:and|与) \w+[,，] ?(?:19|20)\d\d",
    r"(?:[Ss]ections?|[Ee]quations?|[Ee]q\.|[Aa]ppendix|[Tt]ables?|[Ff]igures?|[Ff]ig\.|[Aa]lgorithm|[Cc]hapter|[Ff]ootnote|[Tt]ask|§+) ?"
    r"\(?[A-Z]?\.?\d+(?:\.\d+)*\)?(?:(?:,| and|–|-) ?\(?\d+(?:\.\d+)*\)?)*",
    r"(?:第|式|公式|图|表|算法|附录|方程|脚注|任务|该文)\s?[（(]?[A-Z]?\.?\d+(?:\.\d+)*[)）]?(?:\s?[节章条式和、–-]\s?(?:\d+(?:\.\d+)*\s?节)?)*",
]
KNOWN = re.compile("(?:" + "|".join(CITED) + r")|(?<![\w.])(?:" + "|".join(NAMES) + r")(?!\d)", re.MULTILINE)


def prose(text):
    """The lines of a page's prose, blanks where there was something else; as many lines as the page has."""
    kept, open_fences = [], []
    for line in text.splitlines():
        fence = FENCE.match(line)
        if open_fences and (line.strip() == open_fences[-1][0] or _closes(line, open_fences[-1][0])):
            open_fences.pop()
            kept.append("")
        elif fence and not (open_fences and not open_fences[-1][1]):
            is_prose = fence["mark"][0] == ":" or fence["directive"] in PROSE
            open_fences.append((fence["mark"], is_prose))
            title = fence["title"] if fence["directive"] in PROSE - {"drawing", "figure"} else ""
            kept.append(title)
        elif open_fences and (not open_fences[-1][1] or _is_option(line)):
            kept.append("")
        else:
            kept.append(line)
    whole = "\n".join(kept)
    for pattern in NOT_PROSE:
        whole = pattern.sub(lambda found: "¤" + "\n" * found[0].count("\n"), whole)
    return whole.split("\n")


def _closes(line, mark):
    stripped = line.strip()
    return stripped.startswith(mark) and set(stripped) == {mark[0]}


def _is_option(line):
    """Whether it is an option of a directive; the text for readers who do not see a picture is prose."""
    return bool(OPTION.match(line)) and not re.match(r"^\s*:(?:alt|caption|name-of-figure):", line)


def typed_figures(text):
    """(line number, line, figure) of each figure that stands in a page's prose."""
    found = []
    for number, line in enumerate(prose(text), 1):
        plain = re.sub(r"^(\s*(?:>\s*)?)\d+\.\s", r"\1", line)  # the number of an item in a list
        plain = KNOWN.sub("¤", plain)
        found += [(number, line.strip(), digits) for digits in re.findall(r"\d[\d.,:×x]*", plain)]
    return found
