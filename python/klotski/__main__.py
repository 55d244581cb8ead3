"""The command line: `python -m klotski run tiny -p "Hello"` is the program `klotski` of the same build."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program."""
    program = pathlib.Path(__file__).with_name("klotski")
    os.execv(program, ["klotski", *sys.argv[1:]])


if __name__ == "__main__":
    main()
