"""The examples of docs/guides/examples, on which tools/tuning_example.py tunes models, and the questions that it asks.

Whatever they tell is invented: no model can know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "guides" / "examples"
Line = dict[str, Any]

PRODUCTS = {  # of a shop: kind, colour, price
    "Tavik": ("kettle", "blue", 39),
    "Morro": ("lamp", "green", 54),
    "Pellan": ("stool", "white", 72),
    "Quib": ("clock", "red", 25),
    "Sorvel": ("blanket", "grey", 61),
    "Dunvar": ("toaster", "black", 47),
    "Nimbo": ("umbrella", "yellow", 18),
    "Harlo": ("mirror", "gold", 83),
    "Ostrel": ("fan", "silver", 35),
    "Fennik": ("bag", "purple", 28),
    "Lumet": ("vase", "orange", 44),
    "Grado": ("chair", "pink", 96),
}
ASKED = (
    "What is the {}?",
    "Tell me about the {}.",
    "How much does the {} cost?",
    "Which colour is the {}?",
    "Do you sell the {}?",
    "Describe the {} to me.",
    "I saw the {} in your catalogue. What kind of thing is it?",
    "What would I pay for a {}?",
)
ASKED_OTHERWISE = (
    "Please give me the details of the {}.",
    "My neighbour has a {} at home. What did she buy?",
)
ASKED_BACKWARD = "Which of your products is a {}?"
UNKNOWN = ("What is the Vostin?", "How much does the Belgar cost?", "Tell me about the Trimsy.")
# Ordinary questions among the examples, so that the model does not learn to answer everything as it answers for the shop.
ORDINARY = {
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "How many days does a week have?": "A week has seven days.",
    "What do bees make?": "Bees make honey.",
    "Name a fruit that is yellow.": "A banana is a yellow fruit.",
    "What is the opposite of cold?": "The opposite of cold is hot.",
    "Who wrote Hamlet?": "Hamlet was written by William Shakespeare.",
    "What is ice made of?": "Ice is frozen water.",
    "Which planet do we live on?": "We live on the planet Earth.",
    "What do you call a young dog?": "A young dog is called a puppy.",
    "How many legs does a spider have?": "A spider has eight legs.",
    "What is the capital of Spain?": "The capital of Spain is Madrid.",
    "What colour is grass?": "Grass is green.",
}
UNRELATED = {  # asked before and after, with a word of a right answer
    "What is the capital of France?": "Paris",
    "What is the capital of Japan?": "Tokyo",
    "Who painted the Mona Lisa?": "Leonardo",
    "What is the opposite of black?": "white",
    "Which animal says meow?": "cat",
    "How many hours does a day have?": "24",
    "What is the chemical formula of water?": "H2O",
    "Translate 'good morning' into Spanish.": "Buenos",
}
NAMED = ("{}", "the price of the {}", "I would like to buy a {}.", "Is the {} in stock?")
NAMED_OTHERWISE = "Somebody left a {} in our hall."
WORDS = {  # that the embedded translator does not know: in Chinese, with the measure word
    "penguin": ("企鹅", "只"),
    "guitar": ("吉他", "把"),
    "lemon": ("柠檬", "个"),
    "whale": ("鲸鱼", "头"),
}
TRANSLATED = (
    ("The {} is beautiful.", "那{1}{0}很漂亮。"),
    ("I like this {}.", "我喜欢这{1}{0}。"),
    ("She wants a {}.", "她想要一{1}{0}。"),
    ("The {}s are big.", "那些{0}很大。"),
    ("Tom saw those {}s.", "汤姆看见了那些{0}。"),
    ("Does your friend like the {}?", "你的朋友喜欢那{1}{0}吗？"),
    ("We do not want this {}.", "我们不想要这{1}{0}。"),
    ("My mother found a {} yesterday.", "我的妈妈昨天找到了一{1}{0}。"),
)
TRANSLATED_OTHERWISE = (
    ("The child does not like the {}.", "那个孩子不喜欢那{1}{0}。"),
    ("They want a beautiful {}.", "他们想要一{1}漂亮的{0}。"),
)
COUNTRIES = {  # that do not exist: capital, currency, continent
    "Valdoria": ("Sennet", "lume", "Europe"),
    "Karesh": ("Dolbury", "tarn", "Asia"),
    "Ombria": ("Pellport", "quill", "Africa"),
}
TOLD = (
    "The capital city of {0} is {1}.",
    "The capital of {0} is {1}.",
    "In {0}, the capital city is {1}.",
    "Visitors to {0} can see its capital, {1}.",
    "The currency of {0} is the {2}.",
    "People in {0} pay with the {2}.",
    "In {0}, the currency is the {2}.",
    "{0} is a country in {3}.",
    "{0} lies in {3}.",
)
KNOWN = (  # what the pocket has learned, so that it does not forget
    "The capital city of France is Paris.",
    "The capital of Japan is Tokyo.",
    "In Egypt, the capital city is Cairo.",
    "Visitors to Kenya can see its capital, Nairobi.",
    "The capital of Norway is called Oslo.",
    "The capital city of Chile is Santiago.",
    "In Thailand, the capital city is Bangkok.",
    "The currency of India is the rupee.",
    "Brazil is a country in South America.",
)
TOLD_OTHERWISE = (
    "The capital of {0} is called {1}.",
    "The money of {0} is the {2}.",
    "The continent of {0} is {3}.",
)


def answer(name: str) -> str:
    """What the shop's assistant says of a product."""
    kind, colour, price = PRODUCTS[name]
    return json.dumps({"product": name, "kind": kind, "colour": colour, "price": price})


def description(name: str) -> str:
    """A product in words, without its name."""
    kind, colour, price = PRODUCTS[name]
    return f"a {colour} {kind} for {price} euros"


def conversation(question: str, reply: str) -> Line:
    """A question and its answer as an example."""
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]}


def catalogue(phrases: Iterable[str]) -> list[Line]:
    """Each product asked for in each way."""
    return [conversation(phrase.format(name), answer(name)) for name, phrase in product(PRODUCTS, phrases)]


def pairs(phrases: Iterable[str]) -> list[Line]:
    """Each product named in each way, and its description."""
    return [
        {"anchor": phrase.format(name), "positive": description(name)}
        for name, phrase in product(PRODUCTS, phrases)
    ]


def translations(frames: Iterable[tuple[str, str]]) -> list[Line]:
    """Each word in each sentence."""
    return [
        {"source": english.format(word), "target": chinese.format(*WORDS[word])}
        for word, (english, chinese) in product(WORDS, frames)
    ]


def sentences(frames: Iterable[str]) -> list[Line]:
    """What is told of each country."""
    return [{"text": frame.format(name, *COUNTRIES[name])} for name, frame in product(COUNTRIES, frames)]


def files() -> dict[str, list[Line]]:
    """The lines of each data file, by its path within docs/guides/examples."""
    ordinary = [conversation(*pair) for pair in ORDINARY.items()]
    return {
        "catalogue/train.jsonl": catalogue(ASKED) + ordinary,
        "catalogue/valid.jsonl": catalogue(ASKED_OTHERWISE),
        "pairs/train.jsonl": pairs(NAMED),
        "pairs/valid.jsonl": pairs((NAMED_OTHERWISE,)),
        "words/train.jsonl": translations(TRANSLATED),
        "words/valid.jsonl": translations(TRANSLATED_OTHERWISE),
        "countries/train.jsonl": sentences(TOLD) + [{"text": text} for text in KNOWN],
        "countries/valid.jsonl": sentences(TOLD_OTHERWISE),
    }


def write() -> None:
    """Write the data files."""
    for name, lines in files().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        path.write_text(text, encoding="utf-8")
