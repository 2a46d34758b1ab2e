"""A `zoo run` whose steps take their time, so that Ctrl-C finds one under way."""


def slow_run(*arguments, seconds):
    """The code of a process that is `zoo run` with these arguments and sleeps so long after each step."""
    return (
        "import sys, time\n"
        "from zoo.cli import main\n"
        "from zoo.generation.text import TextStream\n"
        "plain = TextStream.steps\n"
        "def slow(*arguments):\n"
        "    for step in plain(*arguments):\n"
        "        yield step\n"
        f"        time.sleep({seconds})\n"
        "TextStream.steps = slow\n"
        f"sys.argv = {['zoo', 'run', *arguments]!r}\n"
        "main()"
    )
