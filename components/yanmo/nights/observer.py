"""What is recorded of a stage that is part of a night: an `Observer` of stages (yanmo.stage.stage_run).

Only a run in a cluster is a night, that is one with an id which moves its channel's pointers: not a stage
that is run in a shell, a dry run, or one of several ranks that is not the first. Nor is one that a person
gave a value that it cannot have: they see that at once, and no training was lost by it.
"""

from __future__ import annotations

import logging
import os
import time

from yanmo.common.errors import DataError, EnvironmentFault, UsageError, advice
from yanmo.nights.index import report_begin, report_end, report_verdict
from yanmo.nights.night import DONE, TERMINATED, Words
from yanmo.nights.record import FAILED, GIVEN_UP, PAUSED, WORKING, Run, StageEnd, Verdict
from yanmo.options.fields import NONE
from yanmo.options.shared import StageOptions
from yanmo.options.values import zone_of
from yanmo.store.mounted import mounted
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.output import Output, PausedOutput
from yanmo.store.runs.failure_card import Card
from yanmo.store.runs.unfinished import GivenUp

log = logging.getLogger(__name__)
TIMEZONE, _FILE = "YANMO_TIMEZONE", "timezone"
"""Variable with the team's zone, and its file in the mounted Secret that names the store."""


def is_of_a_night(options: StageOptions) -> bool:
    """Return whether this process is a stage of a night, and the one that speaks for it."""
    return bool(options.run_id) and options.pointer != NONE and not options.is_helper()


class NightObserver:
    """Records how one process of one stage stands, on its run's record and its channel's index."""

    def __init__(
        self,
        stage: str,
        options: StageOptions,
        started: float,
        zone: str = "",
        last: str = "",
    ) -> None:
        """Args:
        started: when the process was, by the monotonic clock.
        zone: in which the night is shown; by default that of the options' `--night`, else the team's.
        last: the stage that ends the run; this one where it is alone.
        """
        self._stage, self._options, self._started = stage, options, started
        self._zone = zone or zone_of_night(options)
        self._is_on = is_of_a_night(options)
        part = options.pointer.removesuffix("_evaluation") if stage == "evaluate" else ""
        self._task = f"{stage}-{part}" if part and part != stage else stage
        self._last = last or self._task
        self._key = ""

    def begins(self, store: ObjectStore, key: str = "") -> None:
        """The work begins."""
        self._key = key
        if self._is_on:
            work = StageEnd(
                task=self._task,
                stage=self._stage,
                state=WORKING,
                key=key,
            )
            report_begin(self._run(store), work)

    def opens(self, store: ObjectStore) -> None:
        """The night itself begins: it is shown."""
        if self._is_on:
            report_end(self._run(store), self._end(DONE))

    def done(self, store: ObjectStore, output: Output, found: Verdict | None) -> None:
        """The output is there and handed over; `found` is what a verdict says of the run."""
        if not self._is_on:
            return
        run = self._run(store)
        report_end(run, self._end(DONE, key=output.manifest.key))
        if found is not None:
            report_verdict(run, found)

    def paused(self, store: ObjectStore, paused: PausedOutput) -> None:
        """The work is saved, and goes on in another run."""
        words = Words(
            f"{self._task} paused at {paused.where} ({paused.why}); the next run goes on there.",
            f"{self._task} 已暂停于 {paused.where}（{paused.why}）；下一次运行从该处继续。",
        )
        if self._is_on:
            report_end(self._run(store), self._end(PAUSED, words, key=paused.key))

    def failed(self, error: BaseException, again: str) -> None:
        """The stage failed for now: nothing in this process tries it again."""
        if not self._is_on or (isinstance(error, UsageError) and self._last == self._task):
            return
        card = Card.of(self._stage, error, again, self._options.run_id)
        words = Words(
            f"{card.first_line}: {card.why}", f"{self._task} 失败，退出码 {card.exit_code}：{card.why}"
        )
        state = FAILED
        if isinstance(error, GivenUp):
            state, words = GIVEN_UP, Words(f"{self._task}: {card.why}", f"{self._task} 已放弃：{card.why}")
        store = self._store()
        if store is not None:
            report_end(self._run(store), self._end(state, words, lines=tuple(card.lines())))

    def stopped(self) -> None:
        """A signal ended the process."""
        task = self._task
        words = Words(f"{task} was asked to stop, and can be run again.", f"{task} 被要求停止，可再次运行。")
        if self._is_on and (store := self._store()) is not None:
            report_end(self._run(store), self._end(TERMINATED, words))

    def _store(self) -> ObjectStore | None:
        """The store of the options; None where it cannot be opened, which may be what ended the stage."""
        try:
            return store_of(self._options)
        except (OSError, UsageError, DataError, EnvironmentFault) as problem:
            log.warning("this end is on no page of nights: %s", advice(problem))
            return None

    def _end(
        self,
        state: str,
        sentence: Words | None = None,
        *,
        lines: tuple[str, ...] = (),
        key: str = "",
    ) -> StageEnd:
        return StageEnd(
            task=self._task,
            stage=self._stage,
            state=state,
            sentence=sentence or Words(),
            lines=lines,
            key=key or self._key,
            seconds=time.monotonic() - self._started,
        )

    def _run(self, store: ObjectStore) -> Run:
        return Run(
            store=store,
            channel=self._options.channel,
            run_id=self._options.run_id,
            timezone=self._zone or team_zone(),
            last=self._last,
        )


def zone_of_night(options: object) -> str:
    """Return the time zone of the options' `--night`; "" where they have none."""
    return str(getattr(options, "timezone", "")) if getattr(options, "night", "") else ""


def team_zone() -> str:
    """Return the team's zone; UTC where nobody has said it, or this machine does not know it."""
    name = os.environ.get(TIMEZONE, "").strip() or mounted(_FILE) or "UTC"
    try:
        zone_of(name)
    except ValueError:
        log.warning("%s: this machine knows no zone %.40r; times are of UTC", TIMEZONE, name)
        return "UTC"
    return name
