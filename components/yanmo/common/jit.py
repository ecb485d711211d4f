"""Compiled loops: numba when it is there, plain Python when it is not.

numba is imported at the first call, and its machine code is kept on disk: for the tokenizer's kernel that
first call takes 2.9 CPU-seconds once and 0.8 in later processes (import of numba included; busy machine).
Where neither source, home folder nor $NUMBA_CACHE_DIR (our images set it) can be written, nothing is kept.
"""

from __future__ import annotations

import functools
import logging
import os
import types
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
NO_NUMBA = "YANMO_NO_NUMBA"
"""Environment variable: when it is not empty, nothing is compiled (to find faults, to compare)."""


class Compiled(Generic[P, T]):
    """A function that is compiled at its first call; the same results without numba, only slower."""

    def __init__(self, function: Callable[P, T], after: int = 0) -> None:
        self.python, self._left = function, after
        functools.update_wrapper(self, function)
        self._ready: Callable[P, T] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._ready is None:
            if self._left and (items := len(args[0])) <= self._left:  # type: ignore[arg-type]
                self._left -= items
                return self.python(*args, **kwargs)
            self._ready = _compile(self.python)
        return self._ready(*args, **kwargs)


def compiled(function: Callable[P, T]) -> Compiled[P, T]:
    """Decorator: compile `function` at its first call.

    It uses arrays, numbers and other compiled functions of its own file, which become part of it.
    """
    return Compiled(function)


def compiled_after(items: int) -> Callable[[Callable[P, T]], Compiled[P, T]]:
    """Decorator: compile a function once the first arguments of its calls have had `items` together.

    For loops that are often short, in processes that need numba for nothing else: plain Python does so many
    in the time that it takes to import numba.
    """
    return lambda function: Compiled(function, items)


@functools.cache
def has_numba() -> bool:
    """Return whether loops are compiled in this process."""
    if os.environ.get(NO_NUMBA):
        return False
    try:
        import numba  # noqa: F401
    except ImportError as error:
        log.warning("numba is not usable (%s): slower loops are used, with equal results", error)
        return False
    return True


def _compile(function: Callable[P, T]) -> Callable[P, T]:
    if not has_numba():
        return function
    import numba

    function = _linked(function)

    def declare(cache: bool) -> Callable[P, T]:
        done: Callable[P, T] = numba.njit(cache=cache, nogil=True)(function)
        return done

    try:
        return declare(True)
    except RuntimeError as error:  # "no locator available": source and home are read-only
        log.debug("numba: %s", error)
    return declare(False)


def _linked(function: Callable[P, T]) -> Callable[P, T]:
    """`function` with the compiled functions it calls in the form that numba compiles into it."""
    import numba

    assert isinstance(function, types.FunctionType)
    code, known = function.__code__, function.__globals__
    called = {name: known[name] for name in code.co_names if isinstance(known.get(name), Compiled)}
    if not called:
        return function
    for name, helper in called.items():
        # The machine code on disk is dated by the caller's file alone.
        assert helper.python.__code__.co_filename == code.co_filename, f"{name}: of another file"
    helpers = {
        name: numba.njit(nogil=True, inline="always")(_linked(one.python)) for name, one in called.items()
    }
    linked = types.FunctionType(code, {**known, **helpers}, function.__name__, function.__defaults__)
    return functools.update_wrapper(linked, function)
