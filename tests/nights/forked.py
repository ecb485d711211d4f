"""Runs of a pipeline in a second or two, each a process of its own that may be killed (-9): see short.py.

They are forked by a process that does nothing else, has run a night already, and so has read and compiled all
that a run needs. A fork of the process of pytest would have its threads' locks and its pipes, and what a
killed run left behind would keep whoever reads those waiting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from processes import survivors

CHANNEL = "dev"
BETTER, WORSE = "judged better", "judged worse"
WINDOW, EMPTY_WINDOW = "the window ends", "the window ends before a checkpoint"
KILLED, KILLED_EARLY = "killed after a checkpoint", "killed before a checkpoint"
KILLED_LATE, FAULT = "killed before its verdict", "the node is broken"
ENDS = (BETTER, WORSE, WINDOW, EMPTY_WINDOW, KILLED, KILLED_EARLY, KILLED_LATE, FAULT)
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Trained:
    """What a run did in `train`, as it noted itself before it ended."""

    key: str
    found: str
    """Label of the checkpoint that it went on from; "" for none."""
    cache: str
    """Reference to its token cache, as JSON."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    """Its exit code, or the signal that killed it, below 0."""
    said: str
    """Its log."""
    training: str
    """What resolve said that it is about: `new` or `finish train/KEY`; "" where it came to no end."""
    model: str
    """Key of the model that it trains or found; "" where it did not come so far."""
    worked: Trained | None
    """None where it found its model, or refused to train."""


class Forker:
    """The process that forks; a context that ends it."""

    def __init__(self, log: Path) -> None:
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nights.short"],
                cwd=TESTS,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        self._log = log

    def ask(self, **request: Any) -> int:
        """Exit code of what is asked for (`serve` in short.py); below 0 that of a signal that killed it."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text(encoding="utf-8")
        return int(answer)

    def __enter__(self) -> Forker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        left = survivors(self._process.pid)
        if error is None:
            assert code == 0, self._log.read_text(encoding="utf-8")
            assert not left, "processes that a night has left behind"


class ShortNights:
    """The runs of one channel."""

    def __init__(self, forker: Forker, folder: Path) -> None:
        """Args:
        folder: `store` and `data` in it are the channel's.
        """
        self.forker, self.folder = forker, folder
        self.store, self.sources = folder / "store", folder / "data"
        self.bits: dict[str, float] = {}
        """Key of a model -> its bits per character, once it was judged."""

    def night(self, run_id: str, form: dict[str, str], end: str, *, is_forked: bool = True) -> Ended:
        """One run of the pipeline, to the end that it is to have.

        Args:
            is_forked: else it is the forking process itself that runs it, which is ready for the next then.
        """
        place = self.folder / "kfp" / run_id
        place.mkdir(parents=True)
        code = self.forker.ask(
            what="night" if is_forked else "warm up",
            log=str(place / "log.txt"),
            place=str(place),
            store=str(self.store),
            sources=str(self.sources),
            bits=self.bits,
            run_id=run_id,
            form=form,
            end=end,
        )
        worked, model = _read(place / "worked.json"), _read(place / "model.json")
        if "bits" in model:
            self.bits[model["key"]] = model["bits"]
        return Ended(
            code=code,
            said=(place / "log.txt").read_text(encoding="utf-8", errors="replace"),
            training=text_of(place / "resolve/training"),
            model=model["key"] if model else worked["key"] if worked else "",
            worked=Trained(**worked) if worked else None,
        )

    def command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `yanmo channel ...`."""
        log = self.folder / "command.txt"
        code = self.forker.ask(what="command", log=str(log), words=words)
        return code, log.read_text(encoding="utf-8")


def text_of(path: Path) -> str:
    """What is written there; "" where nothing is."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(text_of(path) or "{}"))
