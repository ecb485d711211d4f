"""Errors that a user can act on, and the exit codes they end a stage with.

The codes are sysexits(3)'s, so that a Kubernetes `podFailurePolicy` can tell "never retry this"
(64, 65, 78) from "try again" (75) without reading a log.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TypeGuard

from yanmo.common.address import redacted


class ExitCode(IntEnum):
    """What a stage's process ends with."""

    DONE = 0
    """Output committed and readable, or work saved at the end of its hours: paused."""
    USAGE = 64
    """Wrong or contradicting options: change the command."""
    DATA = 65
    """Missing, damaged or unusable input: change the data."""
    BUG = 70
    """Our fault: report it with the log."""
    RETRY = 75
    """Storage, network, a lost lease, a training that was stopped: the same command goes on."""
    ENVIRONMENT = 78
    """The machine lacks something the options ask for: a GPU, a library, room on a disk, memory."""


class UsageError(ValueError):
    """An option is unknown, malformed or contradicts another."""


class DataError(ValueError):
    """An input is missing, damaged or cannot give what was asked of it."""


class EnvironmentFault(RuntimeError):
    """This machine cannot do what was asked (no GPU, a missing library)."""


class PluginFault(RuntimeError):
    """Code of another package, which an option names, failed: not Yanmo's bug, but no fault of the user's."""


class StorageError(OSError):
    """The store could not be read or written now; nothing half-written is visible."""


class StoreUnusable(EnvironmentFault, OSError):
    """The store's place is no folder, or this user may not use it: no later try mends that."""


class DiskFull(OSError):
    """The disk of a folder for temporary files is full; `needs` says how many bytes may lie there."""

    needs = 0


class LeaseLost(StorageError):
    """Another run owns this key now; stop before the next commit."""


class WorkerLost(StorageError):
    """A worker ended without a word: killed by a person, by the machine's memory, or with its pod."""


_OUT_OF_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BAD_PATH = {errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
_MACHINE = {
    *(errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    *(errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EXDEV, errno.ENODEV),
}
"""Also what a file system or a kernel answers that does not know a call, or not for this file."""


ERROR_OF: Mapping[int, type[Exception]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.DATA: DataError,
    ExitCode.BUG: RuntimeError,
    ExitCode.RETRY: StorageError,
    ExitCode.ENVIRONMENT: EnvironmentFault,
}
"""Exit code -> the error that ends a stage with it, for who passes on how another process ended."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the documented exit code for `error`."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if isinstance(error, (StorageError, TimeoutError, ConnectionError)):
        return ExitCode.RETRY
    if isinstance(error, (DataError, FileNotFoundError, IsADirectoryError, PermissionError)):
        return ExitCode.DATA
    if isinstance(error, (EnvironmentFault, MemoryError)):
        return ExitCode.ENVIRONMENT
    return _of_the_system(error) if isinstance(error, OSError) else ExitCode.BUG


def _of_the_system(error: OSError) -> ExitCode:
    """Return the code of an error of the system, which is no bug of ours: a path, this machine, bad luck."""
    if error.errno in _BAD_PATH:
        return ExitCode.DATA
    return ExitCode.ENVIRONMENT if error.errno in _MACHINE | _OUT_OF_SPACE else ExitCode.RETRY


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of reading or writing a file that is open say nothing of its name: here they do."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def is_out_of_space(error: BaseException) -> TypeGuard[OSError]:
    """Return whether a disk or a quota is full. That passes when somebody frees space, not by waiting."""
    return isinstance(error, OSError) and error.errno in _OUT_OF_SPACE


def advice(error: BaseException) -> str:
    """`error` in one paragraph: what went wrong and, where the error does not say so, what to do.

    No password of an address is in it, and nothing that fills a screen: it goes to logs and into the store.
    It is one line: where an option or data are wrong, a line break is one of a value or name that was given;
    elsewhere it stands between lines of a log.
    """
    text = shortened(redacted(_advice(error)))
    if isinstance(error, (UsageError, DataError)):
        return text.replace("\n", "\\n")
    return re.sub(r"\s*\n\s*", " ", text)


_LONG_WORD = re.compile(r"\S{301,}")
_SHOWN = 100
_LONGEST = 4000


def shortened(text: str) -> str:
    """`text` with its long words cut, such as a value of 100,000 characters where a name was expected."""
    text = _LONG_WORD.sub(lambda found: f"{found[0][:_SHOWN]}... ({len(found[0])} characters)", text)
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"


def _advice(error: BaseException) -> str:
    if is_out_of_space(error):
        import tempfile  # 5 ms that --help does not need

        name = error.filename2 or error.filename  # of a copy, the second is what is written
        where = f" while writing {name}" if name else ""
        where += ", the folder for temporary files (TMPDIR)" if name == tempfile.gettempdir() else ""
        mend = "Raise the limit (ulimit -f)" if error.errno == errno.EFBIG else "Free space"
        most = error.needs if isinstance(error, DiskFull) else 0
        needs = f"; up to {most / 1e6:,.0f} MB are needed there" if most else ""
        return (
            f"{os.strerror(error.errno or errno.ENOSPC).lower()}{where}{needs}; nothing half-written is "
            f"visible. {mend} and run the same command again"
        )
    if isinstance(error, MemoryError):
        words = f" ({error})" if str(error) else ""
        return f"out of memory{words}; use a machine or a pod with more, or fewer --workers"
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        where = error.filename or "the disk"
        return f"{where}: read-only; mount it for writing, or give another --store or --scratch"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; {_what_to_do(error)}"
    return str(error) or type(error).__name__


def _what_to_do(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"user {os.geteuid()} may not use it: change its owner or mode, or name another"
    if isinstance(error, FileNotFoundError):
        return "it is gone, or its folder is: look at the path"
    if exit_code(error) == ExitCode.DATA:
        return "expected a file where a file belongs, and a folder above it: look at the path"
    if exit_code(error) == ExitCode.ENVIRONMENT:
        return (
            "this machine or file system does not allow it: see `ulimit -a`, or use a local disk (ext4, XFS)"
        )
    return "run the same command again; where it happens again, look at the disk or the connection"


def in_words(error: BaseException) -> str:
    """Return the reason of `error` in one line to go on from, without number, file name and full stop."""
    reason = error.strerror if isinstance(error, OSError) else None
    words = _INNER.sub("", " ".join((reason or str(error)).split()))
    return (words if words.endswith("..") else words.removesuffix(".")) or type(error).__name__


_INNER = re.compile(r"\[errno \d+\] |\b\w+Exception: ", re.IGNORECASE)
"""What pyarrow puts between its words: numbers, and classes of C++."""


def wrong_in(error: Exception) -> str:
    """Return what is wrong with a document whose reading raised `error`, without Python's names for it."""
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}" if error.args else "it lacks a field"
    if isinstance(error, (TypeError, AttributeError, IndexError)):
        return "it has not the fields that it should, or of another kind"
    return in_words(error)


def report(error: Exception, log: logging.Logger) -> ExitCode:
    """Tell a person what went wrong and what to do; the exit code for it."""
    code = exit_code(error)
    if isinstance(error, PluginFault):
        log.error("%s", advice(error), exc_info=error)
    elif code == ExitCode.BUG:
        log.error("a bug in Yanmo; please report it with this log", exc_info=error)
    else:
        log.error("%s", advice(error))
        log.debug("where it was raised", exc_info=error)
    return code
