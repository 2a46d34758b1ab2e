"""A choice of tasks that hides what is of others, by a style sheet alone."""

from __future__ import annotations

from building.architecture_words import WORDS
from building.family import Member, by_task


def task_filter(among: dict[str, Member], language: str, ident: str) -> str:
    """Radio buttons, and the rules that hide what has another `data-task` inside the same `.zoo-filtered`.

    What has `data-tasks`, a list, is hidden where none of them is the one chosen.
    """
    words = WORDS[language]
    tasks = list(by_task(list(among.values())))
    chosen = [("all", words["all tasks"]), *((task, words[f"task {task}"]) for task in tasks)]
    buttons = "".join(
        f'<label><input type="radio" name="{ident}" id="{ident}-{task}"{" checked" if task == "all" else ""}> '
        f"{title}</label>"
        for task, title in chosen
    )
    rules = "".join(
        f".zoo-filtered:has(#{ident}-{task}:checked) :is([data-task]:not([data-task={task}]),"
        f"[data-tasks]:not([data-tasks~={task}])){{display:none}}"
        for task in tasks
    )
    return f'<style>{rules}</style><fieldset class="zoo-choice"><legend>{words["filter"]}</legend>{buttons}</fieldset>'
