"""Several texts of a search, and groups of beams that are kept apart."""

import numpy as np
import pytest

from tests.helpers.tables import GARDEN, Table
from zoo.generation.sampling import LogitsProcessors
from zoo.generation.settings import Constraints, Settings
from zoo.generation.strategies.beam import BeamConfig, BeamSearch, run_searches

END, START, LIMIT = 0, 3, 5


def searched(beams, **constraints):
    constraints = Constraints(eos_ids=frozenset([END]), max_tokens=LIMIT, **constraints)
    search = BeamSearch(LogitsProcessors(Settings(), constraints, len(GARDEN)), beams)
    for _ in run_searches(Table(GARDEN, START), [search]):
        pass
    return search.found()


def by_definition(groups, width, penalty):
    """The texts and scores of a search of groups, each step of each group done over all its continuations."""
    table = np.log(np.array(GARDEN))
    running = [[((), 0.0)] for _ in range(groups)]
    finished = [[] for _ in range(groups)]
    for length in range(1, LIMIT + 1):
        taken = np.zeros(len(GARDEN))
        for group in range(groups):
            options = []
            for tokens, score in running[group]:
                last = tokens[-1] if tokens else START
                for token, logprob in enumerate(table[last]):
                    options.append((score + logprob - penalty * taken[token], (*tokens, token)))
            options = sorted(options, key=lambda option: -option[0])[: 2 * width]
            ended = [option for option in options[:width] if option[1][-1] == END or length == LIMIT]
            finished[group] += [(score / length, tokens) for score, tokens in ended]
            going = [option for option in options if option[1][-1] != END][:width]
            for _, tokens in going:
                taken[tokens[-1]] += 1
            kept = sorted((score for score, _ in finished[group]), reverse=True)[:width]
            cannot_improve = len(kept) == width and options and options[0][0] / LIMIT <= kept[-1]
            running[group] = [] if cannot_improve else [(tokens, score) for score, tokens in going]
    best = [sorted(each, key=lambda text: -text[0])[:width] for each in finished]
    return sorted((text for each in best for text in each), key=lambda text: -text[0])


@pytest.mark.parametrize(("groups", "width"), [(2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("penalty", [0.2, 1.5])
def test_each_group_pays_for_what_those_before_it_chose(groups, width, penalty):
    count = groups * width
    beams = BeamConfig(
        count, 1.0, "never", beam_groups=groups, diversity_penalty=penalty, return_sequences=count
    )
    found = searched(beams)
    expected = by_definition(groups, width, penalty)
    assert [text.tokens for text in found] == [tokens for _, tokens in expected]
    assert [text.score for text in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


def test_groups_find_texts_that_one_search_does_not():
    def first_tokens(**groups):
        return {
            text.tokens[0] for text in searched(BeamConfig(2, return_sequences=2, **groups), min_tokens=LIMIT)
        }

    assert len(first_tokens()) < len(first_tokens(beam_groups=2, diversity_penalty=5.0)) == 2


def test_the_texts_come_best_first_and_no_text_twice():
    found = searched(BeamConfig(4, return_sequences=4, early_stopping="never"))
    assert [text.score for text in found] == sorted((text.score for text in found), reverse=True)
    assert len({text.tokens for text in found}) == 4
    assert found[:2] == searched(BeamConfig(4, return_sequences=2, early_stopping="never"))
