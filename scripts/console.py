"""Where the `trepak` command begins: Ctrl-C ends it in one line while its modules load, too."""

from __future__ import annotations

import sys


def main() -> int:
    """Loads the command line and runs it; returns the exit code."""
    try:
        from trepak.scripts import cli
    except KeyboardInterrupt:  # `run_command`, which explains it later, is not loaded yet
        print("trepak: interrupted.", file=sys.stderr)
        return 130
    return cli.main()
