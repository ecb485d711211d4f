"""Nights of one channel by `yanmo run`, with faults and bad data, each looked at from outside.

Nights come in tens: every fault and every kind of data is among ten, in an order drawn by the seed. The
checks read the objects as the store lists them, by pyarrow and json, with none of the product's code.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import zstandard
from servers.outage import Outage

from chaos.ground import Ground
from chaos.place import Place, Survey, leftovers, lost, survey
from chaos.plan import Case
from chaos.start import ROOT, Run, start

CHANNEL = "nights"
QUIET = "quiet"
FAULTS = ("pod", "pod", "pod", "store", "store", "store", "clock", "clock", QUIET)
"""`pod`: the run is killed; `store`: the server is away; `clock`: it is wrong."""
GROW, SHRINK, SAME, COPY, MOJIBAKE, EMPTY = "grow", "shrink", "same", "copy", "mojibake", "empty"
EVENTS = (GROW, GROW, GROW, GROW, SHRINK, SAME, COPY, MOJIBAKE, EMPTY)
POISONS = (COPY, MOJIBAKE, EMPTY)
"""A copy of the evaluation set, texts in another encoding, nothing; beside new texts, for one night."""
STAGES = ("curate", "tokenize", "train", "train", "evaluate")
"""Where a fault comes; training is what is worth most."""
CLOCKS = (-93_600, -660, 660, 93_600)
"""Seconds that a clock is off: 26 hours, and 11 minutes, which is within what S3 allows."""
TRIES = 3
"""Runs of a night: the first, and those that a schedule or a person would start after a red one."""
OUTAGE_SECONDS = 10.0
FORM: dict[str, Any] = {
    "train_steps": 20,
    "train_seed": 1,
    "model_start": "champion",
    "model_vocabulary": 2048,
    "options": "train.layers=2 train.width=64 train.heads=1 train.head_width=64 train.feed_forward=128 "
    "train.batch_rows=16 train.ranks=1 train.warmup_steps=2 train.checkpoint_steps=4 train.log_every=5 "
    "train.valid_characters=2000 "
    "curate.workers=1 tokenize.workers=1 tokenize.agreement_sentences=50 "
    "evaluate.workers=1 evaluate.budget_documents=20 evaluate.samples=2 evaluate.sample_tokens=16 "
    "evaluate.bootstrap_draws=200 evaluate.baseline_characters=20000 promote.draws=2000",
}
"""The run form, the same in every night: a model of 340,000 parameters, that goes on from the champion."""
_LEASE_SECONDS = 90.0
"""Longest time after a night for what a killed run held to run out (60 s) and be gone."""
_OF_LOCAL_RUNS = ("kfp/", "report.html")
"""What `yanmo run` leaves in a store on a folder: KFP's small files, and the newest page."""


@dataclass(frozen=True)
class Night:
    """What is planned for one night."""

    number: int
    """From 1 on."""
    data: str
    """One of EVENTS."""
    fault: str
    stage: str
    """During which the fault comes."""
    wait: float
    """Seconds from the stage's first work to the fault."""
    clock: int
    """Seconds that the clock is off, where that is the fault."""


def planned(seed: int, count: int) -> list[Night]:
    """The first `count` nights of a seed. The first of ten grows and is quiet; one without new data is quiet,
    as nothing is made in which a fault could come."""
    draw, found = random.Random(f"nights/{seed}"), list[Night]()
    while len(found) < count:
        faults, events = (draw.sample(of, len(of)) for of in (FAULTS, EVENTS))
        same, quiet = events.index(SAME), faults.index(QUIET)
        faults[same], faults[quiet] = faults[quiet], faults[same]
        for data, fault in ((GROW, QUIET), *zip(events, faults, strict=True)):
            at = draw.choice(STAGES), round(draw.uniform(0, 2), 2), draw.choice(CLOCKS)
            found.append(Night(len(found) + 1, data, fault, *at))
    return found[:count]


def cases(ground: Ground) -> Iterator[Case]:
    """Ten nights, in a brief run three; then gc."""
    with contextlib.ExitStack() as stack:
        outage = stack.enter_context(Outage(ground.server.endpoint)) if ground.server else None
        place = stack.enter_context(ground.place(outage.endpoint if outage else ""))
        sitting = Sitting(ground, place, outage)
        for night in planned(ground.seed, ground.times(10, 3)):
            name = f"{night.number}: {night.data}, {night.fault} in {night.stage}"
            yield Case("nights", name, functools.partial(sitting.night, night))
        yield Case("nights", "gc after them", sitting.leave_clean)


class Sitting:
    """Nights in one store."""

    def __init__(self, ground: Ground, place: Place, outage: Outage | None) -> None:
        self.place, self.folder, self.outage = place, ground.folder, outage
        self.files = Files(random.Random(f"files/{ground.seed}"))
        self._runs: list[Run] = []
        self._survey: Survey | None = None
        self._pinned = ""
        """Content digest of the evaluation set."""

    def night(self, night: Night) -> tuple[str, list[str]]:
        """Run a night until there is a verdict; what came of it, and what is found after it."""
        poison = self.files.change(night, pinned_texts(self.place))
        last, champion = (reference(self.place, name) for name in ("promote", "champion"))
        runs, met, said = self._run(night)
        findings = [f"lost after {runs} runs: {said}"] if said else []
        verdict = "LOST" if said else self._verdict(last)
        if not verdict:
            findings.append("the run ended well without a verdict")
        findings += self._nothing_is_left()
        findings += self._store_is_whole()
        findings += poison_is_out(self.place, poison)
        findings += self._pointers_are_right(verdict, champion)
        return f"{verdict} after {runs} runs {met}".rstrip(), findings

    def _run(self, night: Night) -> tuple[int, str, str]:
        """How many runs it took, whether the fault hit nothing, and the last words of a lost night."""
        fault, met = night.fault, ""
        if fault == "store" and self.outage is None:
            fault, met = QUIET, "(left out: a folder has no server)"
        for runs in range(1, TRIES + 1):
            run, is_late = self._one(night, fault)
            met = "too late" if is_late else met
            if run.process.returncode == 0:
                return runs, met, ""
            fault = QUIET
        return TRIES, met, run.text[-2000:]

    def _one(self, night: Night, fault: str) -> tuple[Run, bool]:
        """One run to its end, with a fault; whether that came when its stage was over."""
        data = self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        for name, content in self.files.now.items():
            (data / name).write_bytes(content)
        fields = [w for n, v in (*FORM.items(), ("data_sources", data)) for w in ("--set", f"{n}={v}")]
        variables = {"YANMO_CLOCK_OFFSET": str(night.clock)} if fault == "clock" else {}
        words = ("--store", self.place.uri, "--channel", CHANNEL, *fields)
        run = start("yanmo_pipelines.run", words, self.place, self.folder, variables)
        self._runs.append(run)
        is_late = fault in ("pod", "store") and not self._disturb(run, night)
        run.wait()
        return run, is_late

    def _disturb(self, run: Run, night: Night) -> bool:
        """Once the stage makes something; False where it never does."""
        begins = re.compile(rf"^\S+ {night.stage} +making ", re.M)
        while run.process.poll() is None and not begins.search(run.text):
            time.sleep(0.05)
        time.sleep(night.wait)
        if run.process.poll() is not None:
            return False
        if night.fault == "pod":
            run.kill_all()
        elif self.outage is not None:
            self.outage.begin("status")
            time.sleep(OUTAGE_SECONDS)
            self.outage.end()
        return True

    def _verdict(self, last: dict[str, Any] | None) -> str:
        """Promote's own word on the night."""
        now = reference(self.place, "promote")
        if now is None:
            return ""
        if last and now["key"] == last["key"]:
            return "nothing new"
        manifest = json.loads(self.place.read(now["manifest_uri"]))
        verdict = self.place.read(f"{output(now)}/{manifest['attempt']}/verdict.json")
        return str(json.loads(verdict)["outcome"])

    def _nothing_is_left(self) -> list[str]:
        """No process, no lease that is held, no unfinished upload; leases get their time to run out."""
        end = time.monotonic() + _LEASE_SECONDS
        while True:
            found = [f"still running: {name}" for run in self._runs for name in run.orphans]
            found += [f"unfinished upload: {name}" for name in self.place.uploads()]
            found += [f"lease held: {name}" for name in held_leases(self.place)]
            if not found or time.monotonic() > end:
                return found
            time.sleep(2)

    def _store_is_whole(self) -> list[str]:
        """Every byte is as its manifest says, by two readers, and nothing that was committed is gone."""
        code, said = self._command("store", "verify")
        before, self._survey = self._survey, survey(self.place)
        failed = [] if code == 0 else [f"yanmo store verify ended with {code}: {said[-400:]}"]
        return [*failed, *self._survey.faults, *(lost(before, self._survey) if before else [])]

    def _pointers_are_right(self, verdict: str, before_it: dict[str, Any] | None) -> list[str]:
        """The evaluation set never changes, and only a verdict moves the champion, to its model."""
        now = (reference(self.place, "evaluation_set") or {}).get("content_digest", "")
        before, self._pinned = self._pinned or now, now
        found = [] if before == now else [f"the evaluation set changed from {before[:12]} to {now[:12]}"]
        champion, model = (reference(self.place, name) for name in ("champion", "train"))
        if champion is None or champion != (model if verdict == "promoted" else before_it):
            found.append(f"{verdict}, and the champion went from {before_it} to {champion}; trained: {model}")
        return found

    def leave_clean(self) -> tuple[str, list[str]]:
        """What is in the store after gc that nothing accounts for; no run is at work."""
        time.sleep(2)
        words = ("--delete", "--older-than", "1s", "--keep-runs", "100000", "--log-level", "warning")
        code, said = self._command("store", "gc", *words)
        failed = [f"yanmo store gc ended with {code}: {said[-600:]}"] if code else []
        now = survey(self.place)
        left = [name for name in leftovers(now) if not name.startswith(_OF_LOCAL_RUNS)]
        return "nothing is left", [*failed, *now.faults, *(f"after gc: {name}" for name in left)]

    def _command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `yanmo WORDS` on the store."""
        done = start("yanmo.cli", (*words, f"--store={self.place.uri}"), self.place, self.folder)
        return done.wait(), done.text


class Files:
    """The channel's data: real texts of the bundled corpus, and what poisons a night."""

    def __init__(self, draw: random.Random) -> None:
        self.now: dict[str, bytes] = {}
        self._draw, self._begin = draw, 0

    def change(self, night: Night, pinned: list[dict[str, Any]]) -> list[str]:
        """Change the files as a night's data say; returns the texts of its poison."""
        if night.data == SAME:
            return []
        self.now = {n: data for n, data in self.now.items() if not n.startswith(POISONS)}
        if night.data == SHRINK:
            del self.now[self._draw.choice(sorted(self.now)[1:])]
            return []
        for part in range(3 if night.number == 1 else 1):
            rows = self._next(2 if night.number == 1 else 1)
            self.now[f"part-{night.number:03d}-{part}.jsonl"] = lines_of(rows)
        if night.data not in POISONS:
            return []
        rows = []
        if night.data == COPY:
            rows = [{name: row[name] for name in ("genre", "title", "text")} for row in pinned]
        elif night.data == MOJIBAKE:
            rows = [{**row, "text": garbled(row["text"], n)} for n, row in enumerate(self._next(1))]
        self.now[f"{night.data}-{night.number:03d}.jsonl"] = lines_of(rows)
        return [row["text"] for row in rows]

    def _next(self, times: int) -> list[dict[str, Any]]:
        """Texts that no file has had."""
        begin, self._begin = self._begin, self._begin + times * self._draw.randint(60, 140)
        return list(_pool()[begin : self._begin])


@functools.cache
def _pool() -> tuple[dict[str, Any], ...]:
    with zstandard.open(ROOT / "corpus/small.jsonl.zst", "rt", encoding="utf-8") as file:
        return tuple(map(json.loads, file))


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """A file of JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def garbled(text: str, number: int) -> str:
    """The text as a program shows it that takes its bytes for another encoding's."""
    written, read = (("utf-8", "gb18030"), ("gb18030", "latin-1"), ("utf-8", "latin-1"))[number % 3]
    return text.encode(written).decode(read, "replace")


def held_leases(place: Place) -> list[str]:
    """Names of leases whose time has not run out."""
    names = [name for name in place.names() if name.endswith("/LEASE.json")]
    return [name for name in names if json.loads(place.read(name))["expires_at"] > time.time()]


def poison_is_out(place: Place, poison: list[str]) -> list[str]:
    """No text of the evaluation set and none of these garbled ones is in the training text."""
    curated = reference(place, "curate")
    if curated is None or reference(place, "evaluation_set") is None:
        return ["the channel has no documents or no evaluation set"]
    learned = {folded(row["text"]) for row in stored_texts(place, output(curated), "train")}
    kept = {folded(row["text"]) for row in pinned_texts(place)}
    found = [f"{len(learned & kept)} texts of the evaluation set are learned from"] if learned & kept else []
    bad = {folded(text) for text in poison} & learned
    return found + ([f"{len(bad)} poisoned texts are learned from"] if bad else [])


def pinned_texts(place: Place) -> list[dict[str, Any]]:
    """The documents of the channel's evaluation set; none before the first night."""
    pinned = reference(place, "evaluation_set")
    return stored_texts(place, output(pinned), "test") if pinned else []


def stored_texts(place: Place, output: str, split: str) -> list[dict[str, Any]]:
    """The documents of `split` in an output (`cas/<stage>/<key>`), read with pyarrow alone."""
    names = [n for n in place.names() if n.startswith(f"{output}/") and f"/{split}-" in n]
    return [row for name in names for row in pq.read_table(io.BytesIO(place.read(name))).to_pylist()]


def reference(place: Place, name: str) -> dict[str, Any] | None:
    """What a pointer of the channel names; None where there is no such pointer."""
    name = f"pointers/{CHANNEL}/{name}.json"
    return dict(json.loads(place.read(name))) if name in place.names() else None


def output(of: dict[str, Any]) -> str:
    """Folder of the output that a reference names."""
    return os.path.dirname(of["manifest_uri"])


def folded(text: str) -> str:
    """Simplified and without white space, so that a text is known again after normalization."""
    return "".join(str(_converter().convert(text)).split())


@functools.cache
def _converter() -> Any:
    import opencc

    return opencc.OpenCC("t2s")
