"""The command `zoo`: its first lines, before anything of the zoo is imported."""

import _signal as signal  # built in: `signal` imports others, and Ctrl-C meanwhile would print a traceback

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command. Until it handles Ctrl-C itself, Ctrl-C ends the process at once, without a traceback of imports."""
    from zoo.cli import main

    main()
