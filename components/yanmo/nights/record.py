"""What is known of one night, gathered as its stages end: nights/<channel>/runs/<run>.json.

Who begins the record says which stage ends the run: the last of a pipeline, or the one that runs alone. Each
stage says when it begins its work, and how it ended: done, paused, failed. The verdict says the rest. How the
night stands follows from that, here alone. A stage that was killed says nothing more: its night stays begun,
the index says so of one behind a newer one, and `yanmo status` asks KFP and Kubernetes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from yanmo.nights.night import (
    BEGUN,
    DONE,
    LINES_OF_A_VERSE,
    MOST_LINES,
    MOST_OF_A_LINE,
    MOST_OF_A_VERSE,
    STATES,
    TERMINATED,
    VERDICT_PAGE,
    Row,
    Words,
    plain,
    seconds_of,
)
from yanmo.options.values import zone_of
from yanmo.store.objects import ObjectStore, as_part
from yanmo.store.record import Record, utc_now

WORKING, PAUSED, FAILED, GIVEN_UP = "working", "paused", "failed", "given up"
_ENDED = (GIVEN_UP, TERMINATED, FAILED, PAUSED)
"""Ends of one stage that are the run's, the gravest first."""
RUN = "run"
"""Task under which somebody else says how the run ended."""
_GOES_ON = Words("It goes on.", "正在进行。")


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """How a stage of a night stands."""

    task: str
    """`train`, `evaluate`."""
    state: str
    sentence: Words = field(default_factory=Words)
    lines: tuple[str, ...] = ()
    """The card of a failure."""
    key: str = ""
    """What it works on: its lease says whether it still does."""
    stage: str = ""
    seconds: float = 0.0
    """How long the process that says so has worked; 0 where it only begins, or where another says it. In a
    record, of all processes of the task."""
    at: str = ""
    """When it was said, UTC, ISO 8601; `record_end` sets it."""

    def __post_init__(self) -> None:
        if self.at:
            seconds_of(self.at)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the night's verdict says; fields as in `Row`."""

    state: str = ""
    sentence: Words = field(default_factory=Words)
    bits: float | None = None
    gain: float | None = None
    verse: str = ""
    genre: str = ""
    page: str = ""

    @classmethod
    def of(cls, report: Mapping[str, Any], verses: Sequence[tuple[str, str]], page: str) -> Verdict:
        """The verdict in a report.json.

        Args:
            verses: genre and text of samples, drawn by seed; the first one that is not empty is shown.
            page: the object that a person reads.
        """
        verdict = report["verdict"]
        genre, text = next(((g, t) for g, t in verses if t.strip()), ("", ""))
        lines = [line for line in text.split("\n") if line.strip()][:LINES_OF_A_VERSE]
        return cls(
            state=str(verdict["outcome"]),
            sentence=Words(**{name: plain(text) for name, text in verdict["sentence"].items()}),
            bits=report["bits_per_character"]["columns"][0]["mean"]["value"],
            gain=(verdict.get("gain") or {}).get("share"),
            verse=plain("\n".join(lines), MOST_OF_A_VERSE),
            genre=plain(genre, 40),
            page=page,
        )


@dataclass(frozen=True, kw_only=True)
class NightRecord:
    """All that is known of a night."""

    channel: str
    run_id: str
    timezone: str
    began: str
    changed: str
    """When its state began."""
    last: str
    """The task that ends the run."""
    state: str = BEGUN
    stages: dict[str, StageEnd] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"no night can be {self.state[:20]!r}")
        seconds_of(self.began), seconds_of(self.changed), zone_of(self.timezone)

    def judged(self) -> NightRecord:
        """With the state that follows from what was said."""
        states = {task: stage.state for task, stage in self.stages.items()}
        is_last = states.get(self.last) == DONE and WORKING not in states.values()
        is_done = is_last or states.get(RUN) == DONE
        of_stages = next((s for s in _ENDED if s in states.values()), DONE if is_done else BEGUN)
        state = self.verdict.state or of_stages  # promote comes last, or who ended the night in its place
        return self if state == self.state else dataclasses.replace(self, state=state, changed=utc_now())

    @property
    def row(self) -> Row:
        """The night on the index: the verdict's words, else those of the stage that ended last so."""
        of_state = self.state if self.state in _ENDED else WORKING
        said = [stage for stage in self.stages.values() if stage.state == of_state]
        last = max(said, key=lambda stage: stage.at, default=None)
        done = Words(f"{self.last} is done.", f"{self.last} 已完成。") if self.state == DONE else _GOES_ON
        sentences = [self.verdict.sentence, *([last.sentence] if last else []), done]
        began = datetime.fromisoformat(self.began).astimezone(zone_of(self.timezone))
        shown = {name: getattr(self.verdict, name) for name in ("bits", "gain", "verse", "genre")}
        return Row(
            **{name: getattr(self, name) for name in ("run_id", "began", "state", "changed")},
            **shown,
            date=f"{began:%Y-%m-%d}",
            time=f"{began:%H:%M}",
            sentence=next(one for one in sentences if one.en),
            seconds=sum(stage.seconds for stage in self.stages.values()),
            lines=last.lines if last and self.state in (GIVEN_UP, FAILED) else (),
            page=self.verdict.page if VERDICT_PAGE.match(self.verdict.page) else "",
        )


NIGHT = Record("yanmo.night/2", NightRecord)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a channel, as reports need it."""

    store: ObjectStore
    channel: str
    run_id: str
    timezone: str
    """In which it is shown, where nothing was said of it before."""
    last: str
    """The task that ends it, where nothing was said of it before."""


def record_name(channel: str, run_id: str) -> str:
    """Return where the record of a run lies."""
    return f"nights/{channel}/runs/{as_part(run_id)}.json"


def read_record(store: ObjectStore, channel: str, run_id: str) -> NightRecord | None:
    """Return what is known of a night; None for nothing. Raises DataError where it is damaged."""
    return NIGHT.read(store, record_name(channel, run_id))


def record_end(run: Run, end: StageEnd) -> NightRecord:
    """Enter how a stage of a run stands; return the record as it is then.

    Raises:
        StorageError, DataError: as `Record.change`.
    """

    def with_end(record: NightRecord) -> NightRecord:
        if run.last != end.task:  # who opens the run knows; a stage of it knows of itself alone
            record = dataclasses.replace(record, last=run.last)
        before = record.stages.get(end.task, end)
        now = dataclasses.replace(
            end,
            stage=end.stage or end.task,
            key=end.key or before.key,
            at=utc_now(),
            sentence=Words(plain(end.sentence.en), plain(end.sentence.zh)),
            lines=tuple(plain(line, MOST_OF_A_LINE) for line in end.lines[:MOST_LINES]),
            seconds=round(end.seconds + (0.0 if before is end else before.seconds), 1),
        )
        kept = {task: stage for task, stage in record.stages.items() if task != RUN}  # one that goes on
        return dataclasses.replace(record, stages={**kept, end.task: now})

    return _change(run, with_end)


def record_verdict(run: Run, found: Verdict) -> NightRecord:
    """Enter what the night's verdict says; errors as of `record_end`."""
    return _change(run, lambda record: dataclasses.replace(record, verdict=found))


def _change(run: Run, change: Callable[[NightRecord], NightRecord]) -> NightRecord:
    def changed(record: NightRecord | None) -> NightRecord:
        now = utc_now()
        begun = NightRecord(
            channel=run.channel,
            run_id=plain(run.run_id, 200),
            timezone=run.timezone,
            began=now,
            changed=now,
            last=run.last,
        )
        return change(record or begun).judged()

    made = NIGHT.change(run.store, record_name(run.channel, run.run_id), changed)
    assert made is not None
    return made
