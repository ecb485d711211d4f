"""How a training on several nodes ended, as node 0 tells it to the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import ERROR_OF, ExitCode, StorageError, advice, exit_code
from yanmo.store.pause import Pause
from yanmo.store.runs.fatal_record import Ended

log = logging.getLogger(__name__)


def error_of(code: int, message: str) -> Exception:
    """The error that ends a stage with a code that another node ended with."""
    return ERROR_OF.get(code, RuntimeError)(message)


@dataclass(frozen=True)
class Outcome:
    """Of one try."""

    code: int
    """Exit code of node 0."""
    message: str = ""
    is_pause: bool = False
    """Whether it saved and ended because it was asked to, or its hours were over: there is no other try."""

    @classmethod
    def of(cls, error: BaseException) -> Outcome:
        """Of a try that an error ended."""
        if not isinstance(error, Exception):  # SIGTERM or Ctrl-C, while nothing could be saved
            return cls(int(ExitCode.RETRY), "asked to stop")
        return cls(int(exit_code(error)), advice(error))

    @classmethod
    def of_pause(cls, pause: Pause) -> Outcome:
        """Of a try that saved and ended."""
        code = ExitCode.DONE if pause.is_planned else ExitCode.RETRY
        return cls(int(code), f"paused at {pause.where}: {pause.why}", is_pause=True)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Outcome:
        return cls(int(message["code"]), str(message["message"]), bool(message["is_pause"]))

    def follow(self, is_made: Callable[[], bool]) -> Ended:
        """How another node ends then.

        Args:
            is_made: whether the store has the model. Whoever answers at the rendezvous may say that it has.

        Raises:
            StorageError: the model is said to be committed, and is not.
            Exception: one with node 0's exit code, where an error ended it.
        """
        if not self.code and not self.is_pause and not is_made():
            raise StorageError(
                "who answered as node 0 says that the model is committed, and the store has none; look at "
                "--rendezvous, and run the same command again"
            )
        words = f"node 0: {self.message or 'the model is committed'}"
        if self.code and not self.is_pause:
            raise error_of(self.code, words)
        log.info("%s", words)
        return Ended(self.code, words if self.code else "")
