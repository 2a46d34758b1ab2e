"""`python -m zoo` is the command."""

from zoo_command import main

if __name__ == "__main__":
    main()
