"""A command of the zoo whose steps take their time, so that Ctrl-C finds one under way."""


def slow_run(*arguments, seconds, command="run"):
    """The code of a process that is `zoo run` with these arguments and sleeps so long before each step's text."""
    return (
        "import sys, time\n"
        "from zoo.cli import main\n"
        "from zoo.generation.loop.text_stream import TextStream\n"
        "plain = TextStream.add\n"
        "def slow(*arguments):\n"
        f"    time.sleep({seconds})\n"
        "    return plain(*arguments)\n"
        "TextStream.add = slow\n"
        f"sys.argv = {['zoo', command, *map(str, arguments)]!r}\n"
        "main()"
    )
