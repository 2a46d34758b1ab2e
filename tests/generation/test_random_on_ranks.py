"""What is drawn at random without a seed is the same on all ranks, which compute one text together."""

from zoo.generation.chat.tools import made_call
from zoo.generation.speculative.drafters import DraftSampler
from zoo.runtime import ranks


def drawn():
    with ranks.stand_in(object()):
        return DraftSampler(8)._key.tolist(), made_call("add", {}).id, made_call("add", {}).id


def test_ranks_draw_the_same_drafts_and_ids_of_calls():
    first, second = drawn(), drawn()
    assert first == second and first[1] != first[2]


def test_a_command_that_runs_alone_draws_another_id_each_time():
    assert made_call("add", {}).id != made_call("add", {}).id
