"""How every command ends: what it was asked goes to stdout, what went wrong to stderr with its exit code."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from yanmo.common.answers import reader_left, take_stdout
from yanmo.common.errors import ExitCode, report
from yanmo.common.logs import setup

log = logging.getLogger(__name__)


def as_process(main: Callable[[], int]) -> NoReturn:
    """`main` as the last line of a `__main__`: its return value is the process's exit code.

    SIGTERM ends it in as orderly a way as Ctrl-C: leases released, attempts removed. stdout is for its
    answers alone.
    """
    take_stdout()
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())


def _stop(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def ended(name: str, serve: Callable[[], int], interrupted: str = "the same command starts it again") -> int:
    """What `serve` returns, or the exit code for what ended it, after a word about it in the log.

    Args:
        name: the command, as the lines of its log begin.
        interrupted: what Ctrl-C leaves behind.

    Raises:
        ModuleNotFoundError: a package is missing; the console script names the extra that has it.
    """
    setup("info", name)
    try:
        code = serve()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `yanmo store ls | head`
        reader_left()
        return ExitCode.DONE
    except KeyboardInterrupt:
        log.warning("interrupted; %s", interrupted)
        return 128 + signal.SIGINT
    except ModuleNotFoundError:
        raise
    except Exception as error:
        return int(report(error, log))
