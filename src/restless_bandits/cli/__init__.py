"""The command line, ``restless``: what each command takes and prints is a contract, see the README.

Exit code 0 means done; 2 means bad input, told in one sentence on stderr. With ``--json`` a command prints one JSON
object on stdout and nothing else there; progress goes to stderr.
"""

from __future__ import annotations

import sys

from restless_bandits.errors import ProblemError


def main() -> None:
    """Run the command line."""
    from restless_bandits.cli.app import app

    try:
        app(prog_name="restless")
    except ProblemError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output went away, as in `restless index … | head`; it has what it wanted.
        sys.stderr.close()
        sys.exit(0)
