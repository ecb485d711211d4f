"""The border to libraries that read what others made: what they raise becomes an error to act on.

`tokenizers` and `safetensors` are Rust: where they panic (a regex that gives up, an index out of range) pyo3
raises a BaseException, which no `except Exception` sees; a stage would end with a traceback and exit code 1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yanmo.common.errors import DataError, EnvironmentFault, StorageError, UsageError, in_words

_OURS = (DataError, UsageError, StorageError, EnvironmentFault, MemoryError)


@contextmanager
def foreign(what: str, mend: str = "copy it again") -> Iterator[None]:
    """Inside, a library reads foreign bytes.

    Args:
        what: what it reads, and what that is not: `x.parquet: not a readable Parquet file`.
        mend: what to do.

    Raises:
        DataError: the library failed, or panicked.
    """
    try:
        yield
    except _OURS:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__module__ == "pyo3_runtime":
            raise DataError(f"{what}: {in_words(error)}; {mend}") from error
        raise


class Guarded:
    """An object of a library behind the border: each call of a method of it is one inside `foreign`."""

    def __init__(self, inner: Any, what: str, mend: str) -> None:
        self._inner, self._border = inner, (what, mend)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def call(*given: Any, **named: Any) -> Any:
            with foreign(*self._border):
                return found(*given, **named)

        setattr(self, name, call)
        return call


def unguarded(thing: Any) -> Any:
    """Return a library's object itself, which other parts of that library ask for; `thing` if it is one."""
    return thing._inner if isinstance(thing, Guarded) else thing
