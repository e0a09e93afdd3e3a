"""The command line, ``restless``: what each command takes and prints is a contract, see the README.

Exit code 0 means done; 2 means bad input, told in one sentence on stderr. With ``--json`` a command prints one JSON
object on stdout and nothing else there; progress goes to stderr. The library is imported inside the functions of all
modules here, so that ``--help`` and completion answer at once.
"""

from __future__ import annotations

import io
import os
import sys

from restless_bandits.errors import ProblemError, ReaderGoneError


def main() -> None:
    from restless_bandits.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show ≤ gets a question mark, not a traceback; stderr is so by itself.
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app(prog_name="restless")
        finally:
            # Not left to the end of the interpreter, which would tell of a reader that is gone.
            sys.stdout.flush()
    except ProblemError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except (ReaderGoneError, BrokenPipeError):
        # What is still buffered must go somewhere when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
