"""`python -m refimpl` is the command `refimpl`."""

import sys


def main() -> int:
    """The command, also where Ctrl-C comes while it is still being imported."""
    try:
        from refimpl.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("refimpl: interrupted\n")
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
