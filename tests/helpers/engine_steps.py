"""The steps of an engine by the sequence that they are of, and those of a sequence alone."""

from zoo.generation.loop.engine import Engine


def steps_alone(loaded, prompt, **settings):
    """The steps of a prompt that an engine of its own runs."""
    engine = Engine(loaded, rows=1)
    engine.add(prompt, **settings)
    return [step for _, step in engine.run()]


def steps_by_handle(engine, handles, before=()):
    """The steps of each handle until all sequences end, after the pairs `before` that were taken already."""
    found = {handle: [step for owner, step in before if owner == handle] for handle in handles}
    for handle, step in engine.run():
        found[handle].append(step)
    return found
