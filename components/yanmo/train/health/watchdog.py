"""Ends a rank that makes no progress, with the stacks of all its threads in the log.

In a collective, a rank waits silently for a dead or frozen one, until the collective's time limit or forever.
Here each rank has a thread that expects regular calls of `beat`; when they stop, it dumps all stacks with
faulthandler and ends the process with exit code 75, so that the run is tried again. While they come, it
touches a file once a second, by which the supervisor notices a rank that is itself frozen (SIGSTOP, a stuck
driver). A second file says what the rank is doing.

A third file is touched while this thread runs, whatever the training does: of two ranks that make no progress
it tells the one whose process stands still from the one that waits for it.

Time counts only while this thread runs: setting the clock, a machine that sleeps, or a container that is
paused for hours, ends no rank.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from yanmo.common.given_file import json_value

FOLDER = "heartbeats"
TRAINING = "training step"
"""How the report of a rank that trains begins; the number of the step follows."""
STARTING = "starting"
IMPORTING, OPENING, FIRST_WEIGHTS = "importing torch", "opening the token cache", "making the first weights"
JOINING, LOADING = "joining the other ranks", "loading a checkpoint"
STARTS = frozenset({STARTING, IMPORTING, OPENING, FIRST_WEIGHTS, JOINING, LOADING})
"""What a rank reports before it trains; `LOADING` also when it rewinds."""
BEFORE_OTHERS = STARTS - {LOADING}
"""The same before it has met the other ranks."""
_COLLECTIVES = ("/torch/distributed/", "/deepspeed/comm/", "/yanmo/train/backends/process_group.py")
"""Files whose functions wait for other ranks."""
_ALIVE = "alive-"
_PERIOD_SECONDS = 1.0
_MOST_GAP_SECONDS = 5.0
"""Most seconds that count between two looks: after a longer pause this thread itself was stopped."""


class Silence:
    """Measures how long a value has not changed, by repeated calls of `look`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._value: object = None
        self._looked = clock()
        self._seconds = 0.0

    def look(self, value: object) -> float:
        """Seconds since `value` last changed; of a pause between two calls, at most five seconds count."""
        now = self._clock()
        gap = min(now - self._looked, _MOST_GAP_SECONDS)
        self._seconds = self._seconds + gap if value == self._value else 0.0
        self._value, self._looked = value, now
        return self._seconds


class Watchdog:
    """Ends the process if `beat` is not called for `limit` seconds, once it is started."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        limit: float,
        on_hang: Callable[[str], None],
        write_figures: Callable[[Path], None] = lambda path: None,
        step_limit: float = 0.0,
    ) -> None:
        """Args:
        folder: the run's folder.
        limit: seconds without a beat; 0 never ends the process.
        step_limit: the same within a training step, for several nodes: the first step of a start, which may
            compile, does not count, and a step may take four times the longest one so far. 0: as `limit`.
        on_hang: called with a description before the process ends; must not wait for anything.
        write_figures: writes what the rank has counted to a file; called once a second while it trains.
        """
        self._write_figures = write_figures
        self._path = heartbeat_path(folder, rank)
        self._limit, self._step_limit, self._on_hang = limit, step_limit, on_hang
        self._steps, self._longest_step = 0, 0.0
        self._beat = time.monotonic()
        self._doing = STARTING
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="watchdog")

    def start(self) -> None:
        """Write the heartbeat files and start the thread."""
        with suppress(OSError):  # a full disk is reported by whoever writes what matters
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(str(os.getpid()), encoding="utf-8")
            _alive_path(self._path).touch()
        self._write_doing(self._doing)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching: no more beats will come."""
        self._stop.set()
        self._note_figures()

    def beat(self, doing: str) -> None:
        """Report that the training thread is alive, and what it begins; takes less than a microsecond."""
        now = time.monotonic()
        if self._step_limit and self._doing.startswith(TRAINING):
            self._longest_step = max(self._longest_step, now - self._beat) if self._steps else 0.0
            self._steps += 1
        self._doing, self._beat = doing, now

    def _run(self) -> None:
        touched, silence, shown = 0.0, Silence(), ""
        while not self._stop.wait(_PERIOD_SECONDS):
            if shown != (doing := self._doing):
                self._write_doing(shown := doing)
            with suppress(OSError):
                os.utime(_alive_path(self._path))
            silent = silence.look(self._beat)
            limit = self._limit_now()
            if limit and silent > limit:
                self._end(silent, limit)
            if self._beat > touched:
                touched = time.monotonic()
                with suppress(OSError):  # a full disk is reported by whoever writes what matters
                    os.utime(self._path)
                self._note_figures()

    def _limit_now(self) -> float:
        if not (self._limit and self._step_limit and self._steps and self._doing.startswith(TRAINING)):
            return self._limit
        return min(self._limit, max(self._step_limit, 4 * self._longest_step))

    def _note_figures(self) -> None:
        with suppress(OSError):
            self._write_figures(figures_path(self._path))

    @property
    def doing(self) -> str:
        """Return what the training thread reported last."""
        return self._doing

    def _write_doing(self, doing: str) -> None:
        with suppress(OSError):
            doing_path(self._path).write_text(f"{doing}\n", encoding="utf-8")

    def _end(self, silent: float, limit: float) -> None:
        sys.stderr.flush()
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        of = "--hang-seconds" if limit == self._limit else "by --collective-seconds"
        self._on_hang(
            f"no progress for {silent:.0f} s while {self._doing} ({of} {limit:g}); the "
            "stacks of all threads are in workers.log. Another rank or the machine may be stuck; run the "
            "same command again to go on from the last checkpoint"
        )
        os._exit(75)


def heartbeat_path(folder: Path, rank: int) -> Path:
    """Return the file that a rank's watchdog touches while the rank makes progress; it holds the process
    id."""
    return folder / FOLDER / f"rank-{rank:05d}"


def doing_path(heartbeat: Path) -> Path:
    """Return the file next to a heartbeat that says what the rank is doing; at most a second old."""
    return heartbeat.with_name(f"doing-{heartbeat.name}")


def figures_path(heartbeat: Path) -> Path:
    """Return the file next to a heartbeat that says what the rank has counted (`RankFigures`)."""
    return heartbeat.with_name(f"figures-{heartbeat.name}")


def _alive_path(heartbeat: Path) -> Path:
    """Return the file next to a heartbeat that is touched while the watchdog's thread runs."""
    return heartbeat.with_name(f"{_ALIVE}{heartbeat.name}")


def waits_for_others() -> bool:
    """Return whether the main thread of this process stands in a collective, by the files of its stack."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        name = frame.f_code.co_filename.replace(os.sep, "/")
        if any(part in name for part in _COLLECTIVES):
            return True
        frame = frame.f_back
    return False


def doings(folder: Path) -> dict[int, str]:
    """Rank -> what it is doing, for each rank that has started."""
    found = {}
    for path in sorted((folder / FOLDER).glob("rank-*")):
        try:
            text = doing_path(path).read_text(encoding="utf-8").strip()
        except OSError:
            text = ""
        found[int(path.name.removeprefix("rank-"))] = text or STARTING
    return found


class Heartbeats:
    """The ranks' heartbeats as the supervisor sees them: by changes of time stamps, not by their values."""

    def __init__(self, folder: Path, *, of: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        of: begin of the files' names: of the training's progress by default.
        """
        self._folder, self._of, self._clock = folder / FOLDER, of, clock
        self._silence: dict[Path, Silence] = {}

    def silent(self, seconds: float) -> list[int]:
        """Return the ranks without a heartbeat for more than this many seconds, sorted; call it regularly."""
        found = []
        for path in sorted(self._folder.glob(f"{self._of}rank-*")):
            with suppress(FileNotFoundError):
                silence = self._silence.setdefault(path, Silence(self._clock))
                if silence.look(path.stat().st_mtime_ns) > seconds:
                    found.append(int(path.name.removeprefix(f"{self._of}rank-")))
        return found


def alive(folder: Path) -> Heartbeats:
    """Return the signs that the ranks' watchdogs run."""
    return Heartbeats(folder, of=_ALIVE)


def forget_heartbeats(folder: Path) -> None:
    """Delete the heartbeat files of an earlier start."""
    for path in (folder / FOLDER).glob("*rank-*"):
        path.unlink(missing_ok=True)


@dataclasses.dataclass
class RankFigures:
    """Counted by one rank since its process began."""

    step: int = 0
    """The last step that it has ended; 0 for none."""
    steps: int = 0
    """Steps that it has ended, those made again included."""
    step_seconds: float = 0.0
    """Wall seconds of all of them."""
    data_seconds: float = 0.0
    """Of these, what they waited for their rows."""
    last_seconds: float = 0.0
    """Wall seconds of the last one."""
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    allocator_retries: int = 0
    checkpoint_seconds: float = 0.0
    """Wall seconds from the beginning of the last checkpoint until it was whole; of rank 0."""
    checkpoint_failures: int = 0

    def ended(self, step: int, seconds: float, data_seconds: float) -> None:
        """Count a step."""
        self.step = step
        self.steps += 1
        self.step_seconds += seconds
        self.data_seconds += data_seconds
        self.last_seconds = seconds

    def waited(self, seconds: float) -> None:
        """Count what the last steps' kernels took after they were launched."""
        self.step_seconds += seconds
        self.last_seconds += seconds

    def write(self, path: Path) -> None:
        """Write them; a reader sees the old file or the new one."""
        temporary = path.with_name(f".{path.name}")
        temporary.write_text(json.dumps(vars(self)), encoding="ascii")
        temporary.replace(path)


def read_figures(path: Path) -> RankFigures | None:
    """Return what a rank wrote last; None where it has written nothing that can be read."""
    try:
        value = json_value(path.read_text(encoding="ascii"))
        return RankFigures(**{name: type(empty)(value[name]) for name, empty in vars(RankFigures()).items()})
    except (OSError, ValueError, KeyError, TypeError):
        return None
