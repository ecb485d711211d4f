"""A training that pauses when the channel's budget of the night or the month is spent.

What a training holds is paid for, whether it computes or waits: its GPUs, and the cores that it may use. So
the cost of a second is known beforehand, and what is left of a budget is a time: the training's window ends
there, as with `--stop-at`. Energy is not in it, as nobody knows it beforehand.

What was held is added to the channel's record every `_NOTE_SECONDS` and at the end; a kill loses the rest.
Trainings of one channel that run at the same time do not see each other's newest minutes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import DataError, EnvironmentFault
from yanmo.common.evening import evening_of
from yanmo.options.time_zone import zone_of
from yanmo.store.channel.spending import Hours, Nights, add_spending, held_in, read_spending
from yanmo.store.objects import ObjectStore
from yanmo.train.config import TrainConfig

log = logging.getLogger(__name__)
_NOTE_SECONDS = 600.0


class Budget:
    """What a training holds, and what it may cost."""

    def __init__(self, store: ObjectStore, options: TrainConfig) -> None:
        self._store, self._options = store, options
        self._gpus = options.world_size if options.device == "cuda" else 0
        self._cores = usable_cpus() * options.nnodes
        self._noted = time.time()
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        return bool(self._options.budget_night or self._options.budget_month)

    def price(self, hours: Hours) -> float:
        """What so many hours cost."""
        return hours.price(self._options.gpu_hour_price, self._options.cpu_hour_price)

    def held(self, seconds: float) -> Hours:
        """What this training holds in so many seconds."""
        return Hours(self._gpus * seconds / 3600, self._cores * seconds / 3600)

    def end(self, nights: Nights, now: float) -> tuple[float, str]:
        """When the budget will be spent, Unix seconds, and which one, in words; infinity without any."""
        rate, found = self.price(self.held(1.0)), [(math.inf, "")]
        for what, hours in held_in(nights, self._night(now)).items():
            used, most = self.price(hours), getattr(self._options, f"budget_{what}")
            if most and (rate or used >= most):
                seconds = max(most - used, 0.0) / rate if rate else 0.0
                before = f"{used:.2f} of it were spent before" if used else "nothing of it was spent before"
                words = f"--budget-{what} {most:g} {self._options.currency}".rstrip()
                found.append((now + seconds, f"{words} is spent; {before}"))
        return min(found)

    def _night(self, now: float) -> str:
        return evening_of(now, zone_of(self._options.timezone)).isoformat()

    def note(self) -> None:
        """Add what was held since the last note; where the store fails, the next note has it too."""
        with self._lock:
            now = time.time()
            try:
                hours = self.held(max(now - self._noted, 0.0))
                add_spending(self._store, self._options.channel, self._night(self._noted), hours)
                self._noted = now
            except (OSError, EnvironmentFault, DataError) as error:
                log.warning("what this training costs is not recorded now: %s", error)


@contextlib.contextmanager
def within(store: ObjectStore, options: TrainConfig) -> Iterator[tuple[float, str]]:
    """When the budget will be spent, and why; while inside, what is held is recorded.

    Raises:
        DataError: the record is damaged: nobody knows what was spent.
    """
    budget = Budget(store, options)
    if not budget.is_set:
        yield math.inf, ""
        return
    end, over = budget.end(read_spending(store, options.channel), time.time()), threading.Event()

    def notes() -> None:
        while not over.wait(_NOTE_SECONDS):
            budget.note()

    thread = threading.Thread(target=notes, daemon=True, name="budget")
    thread.start()
    try:
        yield end
    finally:
        over.set()
        thread.join()
        budget.note()
