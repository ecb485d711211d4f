"""One sitting: the next nights of the plan, one after the other, each looked at from outside."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from torture.place import Survey, leftovers
from torture.stages import start

from nights import checks, growth
from nights.plan import GROW, POISONS, SAME, Night
from nights.record import Outcome, Record
from nights.road import CHANNEL, OF_TRAINING, STEPS, TRIES, NotHere, Road, command
from nights.scorer import bits_per_character
from nights.texts import bytes_of, fresh_texts, stored_texts, texts_in

_OF_LOCAL_RUNS = ("kfp/", "report.html")
"""What `yanmo run` leaves in a store on a folder: KFP's small files, and the newest page."""
_ALL_RUNS = 100_000
SEEDS = 5
"""Models that differ by their seed alone, for the spread of fresh texts' bits."""


class Sitting:
    """Nights on one road, noted in one record."""

    def __init__(self, road: Road, record: Record, planned: Sequence[Night], seeds: int = SEEDS) -> None:
        self.road, self.record, self.planned, self.seeds = road, record, planned, seeds
        self.number = 1 + max((night.sitting for night in record.nights), default=0)
        self._survey: Survey | None = None

    def hold(self) -> None:
        """Run all planned nights that the record does not have yet."""
        for night in self.planned[len(self.record.nights) :]:
            outcome = self.night(night)
            self.record.nights.append(outcome)
            self.record.save()
            say(
                f"night {night.number}: {night.data}, {night.fault}: {outcome.verdict or 'LOST'} after "
                f"{outcome.seconds:.0f} s, {outcome.runs} runs, champion {outcome.champion} "
                f"({outcome.fresh_bits} bits on fresh texts), {outcome.added_bytes:,} bytes, "
                f"{outcome.predicted_bytes:,} predicted; {outcome.met}"
            )
            for finding in outcome.findings:
                say(f"    FINDING: {finding[:1500]}")
        is_first = self.record.starts == [1]  # a later store has not the text of the first night
        if is_first and self.record.first_cache and len(self.record.seeds_bits) < self.seeds:
            self._measure_seeds()

    def night(self, night: Night) -> Outcome:
        """One night, and what is found after it."""
        files, before = self._files(night), growth.sizes(self.road.place)
        outcome = Outcome(
            number=night.number, sitting=self.number, data=night.data, fault=night.fault, stage=night.stage,
            clock=night.clock,
            began_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip
        last = checks.reference(self.road.place, CHANNEL, "promote")
        sources = self.road.lay(files)
        began = time.monotonic()
        said = self._run(night, sources, outcome)
        outcome.seconds = round(time.monotonic() - began, 1)
        if said:
            outcome.findings.append(f"lost after {outcome.runs} runs: {said}")
        else:
            outcome.verdict = self._verdict(last)
        self._look(night, files, before, outcome)
        return outcome

    def _files(self, night: Night) -> dict[str, bytes]:
        """The night's files; texts of the evaluation set come from the store, where there is one."""
        pinned = checks.reference(self.road.place, CHANNEL, "evaluation_set")
        texts = stored_texts(self.road.place, checks.output(pinned), "test") if pinned else []
        return {shard.name: bytes_of(shard, texts) for shard in night.shards}

    def _run(self, night: Night, sources: str, outcome: Outcome) -> str:
        """Run it until there is a verdict; returns the end of the log where there is none after all tries."""
        is_faulty = True
        while True:
            try:
                end = self.road.run(night, sources, is_faulty=is_faulty)
            except NotHere as reason:
                outcome.met, is_faulty = f"left out: {reason}", False
                continue
            outcome.runs += 1
            outcome.met = outcome.met or end.met
            if end.is_done:
                return ""
            if outcome.runs == TRIES:
                return end.said
            is_faulty = False

    def _verdict(self, last: dict[str, Any] | None) -> str:
        """Promote's own word on the night."""
        now = checks.reference(self.road.place, CHANNEL, "promote")
        if now is None:
            return ""
        if last and now["key"] == last["key"]:
            return "nothing new"
        manifest = json.loads(self.road.place.read(now["manifest_uri"]))
        verdict = self.road.place.read(f"{checks.output(now)}/{manifest['attempt']}/verdict.json")
        return str(json.loads(verdict)["outcome"])

    def _look(self, night: Night, files: dict[str, bytes], before: dict[str, int], outcome: Outcome) -> None:
        place = self.road.place
        if not outcome.verdict and not outcome.findings:
            outcome.findings.append("the run ended well without a verdict")
        outcome.findings += checks.nothing_is_left(place, self.road.running)
        now, found = checks.store_is_whole(place, self._survey, lambda: command(self.road, "store", "verify"))
        outcome.findings += found
        self._survey = now
        self.record.pinned, found = checks.evaluation_set_stays(place, CHANNEL, self.record.pinned)
        outcome.findings += found
        poisoned = [shard.name for shard in night.shards if shard.kind in POISONS]
        texts = [text for name in poisoned for text in texts_in(files[name])]
        outcome.findings += checks.poison_is_out(place, CHANNEL, night, texts)
        self._judge_champion(outcome)
        self._judge_growth(night, files, before, outcome)

    def _judge_champion(self, outcome: Outcome) -> None:
        champion = checks.reference(self.road.place, CHANNEL, "champion")
        if champion is None:
            outcome.findings.append("the channel has no champion")
            return
        outcome.champion = champion["content_digest"][:12]
        cache = checks.reference(self.road.place, CHANNEL, "tokenize")
        if outcome.number == 1 and cache:
            self.record.first_cache = cache["key"]
        starts = outcome.number in self.record.starts
        last = None if starts else self.record.nights[-1]
        if last and last.champion == outcome.champion:
            outcome.fresh_bits = last.fresh_bits
            return
        outcome.fresh_bits = round(self._bits(champion), 4)
        before = last.fresh_bits if last else None
        outcome.findings += checks.champion_is_no_worse(before, outcome.fresh_bits, self.record.seeds_bits)

    def _bits(self, model: dict[str, Any]) -> float:
        folder = self.road.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        return bits_per_character(checks.download(self.road.place, model, folder), fresh_texts())

    def _judge_growth(
        self, night: Night, files: dict[str, bytes], before: dict[str, int], outcome: Outcome
    ) -> None:
        came = growth.added(before, growth.sizes(self.road.place))
        outcome.added_bytes = sum(came.values())
        size = sum(map(len, files.values()))
        if outcome.number in self.record.starts:
            self.record.measures = growth.measured(came, size)
            outcome.predicted_bytes = outcome.added_bytes
            return
        earlier = self.planned[self.record.starts[-1] - 1 : night.number - 1]
        known = {shard.name for other in earlier for shard in other.shards}
        fresh = sum(len(data) for name, data in files.items() if name not in known)
        is_other = all(text(night) != text(other) for other in earlier)
        outcome.predicted_bytes = growth.predicted(
            self.record.measures, size, fresh,
            has_other_files=night.data != SAME,
            makes=is_other or self._champion_moved(),
        )  # fmt: skip
        nights = [*self.record.nights[self.record.starts[-1] - 1 :], outcome]
        total, expected = sum(n.added_bytes for n in nights), sum(n.predicted_bytes for n in nights)
        if not growth.is_as_predicted(total, expected):
            outcome.findings.append(f"all nights added {total:,} bytes, {expected:,} were predicted: {came}")

    def _champion_moved(self) -> bool:
        """Whether the night goes on from another champion than the night before."""
        nights = self.record.nights
        return nights[-1].number in self.record.starts or nights[-1].champion != nights[-2].champion

    def _measure_seeds(self) -> None:
        """Train the first night's model with other seeds, in a channel of their own, and score each.

        Then judge the champions of the nights so far, for which the spread was not known.
        """
        words = OF_TRAINING.replace("train.", "--").replace("_", "-").split()
        for seed in range(2 + len(self.record.seeds_bits), 2 + self.seeds):
            run = start(
                "yanmo.train",
                (
                    *(
                        "--store",
                        self.road.place.uri,
                        "--channel",
                        f"{CHANNEL}-seeds",
                        "--metrics-port",
                        "-1",
                    ),
                    *(
                        "--token-cache",
                        f"tokenize/{self.record.first_cache}",
                        "--seed",
                        str(seed),
                        "--steps",
                        str(STEPS),
                    ),
                    *words,
                ),
                self.road.place,
                self.road.folder,
            )
            if code := run.wait():
                raise RuntimeError(f"train with seed {seed} ended with {code}: {run.text[-2000:]}")
            model = checks.reference(self.road.place, f"{CHANNEL}-seeds", "train")
            assert model is not None
            self.record.seeds_bits.append(round(self._bits(model), 4))
            self.record.save()
            say(f"seed {seed}: {self.record.seeds_bits[-1]} bits on fresh texts")
        for before, night in itertools.pairwise(self.record.nights):
            if night.fresh_bits is not None and night.number not in self.record.starts:
                night.findings += checks.champion_is_no_worse(
                    before.fresh_bits, night.fresh_bits, self.record.seeds_bits
                )
        self.record.save()

    def leave_clean(self) -> list[str]:
        """What is in the store after `yanmo store gc --delete` that nothing accounts for.

        No run is at work, so an age of a second is enough.
        """
        time.sleep(2)
        words = ("--delete", "--older-than", "1s", "--keep-runs", str(_ALL_RUNS), "--log-level", "warning")
        code, said = command(self.road, "store", "gc", *words)
        if code:
            return [f"yanmo store gc ended with {code}: {said[-600:]}"]
        now, found = checks.store_is_whole(
            self.road.place, None, lambda: command(self.road, "store", "verify")
        )
        return found + [f"after gc: {name}" for name in leftovers(now) if not name.startswith(_OF_LOCAL_RUNS)]


def text(night: Night) -> tuple[str, ...]:
    """The files of real text."""
    return tuple(shard.name for shard in night.shards if shard.kind == GROW)


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)
