"""How the command ends when it is told to: quietly, at any moment. This file imports nothing that takes time."""

import atexit
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C stopped."""
NUMBERS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Entry point. Ctrl-C, or a request to end (SIGTERM), stops the command without a traceback."""
    arrived: list[int] = []

    def stop(number: int, _) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    before = _handle(dict.fromkeys(NUMBERS, _leave))
    try:
        from bnnp.cli.entry import main as run_verb  # takes seconds

        _handle(dict.fromkeys(NUMBERS, stop))
        run_verb()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if arrived and getattr(error, "code", None) != 0:  # an import that was interrupted may raise any error
            sys.exit(INTERRUPTED)
        raise
    finally:
        _handle(before)
        atexit.register(_handle, dict.fromkeys(NUMBERS, _leave))  # Python takes a moment to end


def _handle(handlers: dict) -> dict:
    """Set what handles the signals, and return what did; not for signals that whoever started us chose to ignore."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in handlers}
    before = {number: known for number, known in before.items() if known not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handlers[number])
    return before


def _leave(*_) -> None:
    os._exit(INTERRUPTED)
