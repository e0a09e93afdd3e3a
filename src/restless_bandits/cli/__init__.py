"""The command line, ``restless``: the arguments and the output of each command are a contract, see the README.

Exit code 0 means success; 2 means bad input, reported in one sentence on stderr. With ``--json`` a command prints only
a JSON object on stdout. Progress goes to stderr, and so does a line about a long compilation. An answer that cannot be
printed ends with 1. A command that is stopped ends with 130 (Ctrl-C) or 143 (SIGTERM), with a sentence too. All modules
here import the library inside functions, so that ``--help`` and completion answer at once.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from typing import Any

from restless_bandits._internal.errors import ProblemError, ReaderGoneError, StoppedError
from restless_bandits.cli.output import INTERRUPTED, say, tell_of_compiling

UNPRINTED, BAD_INPUT, TERMINATED = 1, 2, 143
LONGEST_SENTENCE = 1000
NOWHERE_TO_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main() -> None:
    if sys.stderr is None:
        # The calling process closed the stream: its text must not go to stdout, nor to a file that takes its number.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        sys.exit(_failed("cannot print the answer: standard output is closed", UNPRINTED))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without the character ≤ shows a question mark, not a traceback; stderr does so by default.
        sys.stdout.reconfigure(errors="replace")
    # A command loads a thousand modules, and may compile: the collector would scan all of them again and again.
    gc.set_threshold(100_000, 50, 100)
    tell_of_compiling()
    terminated = False

    def terminate(*_: object) -> None:
        """Handle SIGTERM like Ctrl-C, so that finished work is kept."""
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        code = _run()
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    sys.exit(TERMINATED if terminated and code == INTERRUPTED else code)


def _run() -> int:
    """Run the command and return its exit code."""
    try:
        try:
            from restless_bandits.cli.app import app

            return app(prog_name="restless", standalone_mode=False) or 0
        finally:
            # Flushed here, because the interpreter would report a closed reader at its end.
            sys.stdout.flush()
    except ProblemError as error:
        return _failed(str(error), BAD_INPUT)
    except (StoppedError, KeyboardInterrupt):
        say("Interrupted without an answer; run the command again to start anew")
        return INTERRUPTED
    except (ReaderGoneError, BrokenPipeError):
        _drop_output()
        return 0
    except OSError as error:
        # An error with a file name belongs to a file, and is not explained here.
        if error.filename is not None or error.errno not in NOWHERE_TO_WRITE:
            raise
        _drop_output()
        return _failed(f"cannot print the answer: {error.strerror}", UNPRINTED)
    except Exception as error:
        # Typer uses its own or the installed Click; the attributes here are common to usage errors of both.
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)


def _usage(error: Any) -> int:
    """Report a usage error of the command line."""
    if "NoArgs" in type(error).__name__:
        error.show()
        return int(error.exit_code)
    where = getattr(getattr(error, "ctx", None), "command_path", "restless")
    message = " ".join(error.format_message().split()).removesuffix(".")
    return _failed(f"{message}; {where} --help shows the options", BAD_INPUT)


def _failed(sentence: str, code: int) -> int:
    if len(sentence) > LONGEST_SENTENCE:
        sentence = sentence[: LONGEST_SENTENCE // 2] + " ... " + sentence[-LONGEST_SENTENCE // 2 :]
    say(f"Error: {sentence}")
    return code


def _drop_output() -> None:
    """Discard the buffered output when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
