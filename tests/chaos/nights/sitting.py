"""The next nights of one channel, one after the other, each looked at from outside."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from typing import Any

from chaos.ground import Ground
from chaos.nights import checks
from chaos.nights.here import Here, here
from chaos.nights.plan import COPY, MOJIBAKE, Night, nights
from chaos.nights.texts import bytes_of, stored_texts, texts_in
from chaos.place import Survey, leftovers, lost, survey
from chaos.plan import Case, Skip
from chaos.start import start

TRIES = 3
"""Runs of a night: the first, and those that a schedule or a person would start after a red one."""
_OF_LOCAL_RUNS = ("kfp/", "report.html")
"""What `yanmo run` leaves in a store on a folder: KFP's small files, and the newest page."""


def cases(ground: Ground) -> Iterator[Case]:
    """Ten nights, in a brief run three; then gc."""
    with here(ground) as road:
        sitting = Sitting(road)
        for night in nights(ground.seed, ground.times(10, 3)):
            yield Case("nights", night.name, functools.partial(sitting.night, night))
        yield Case("nights", "gc after them", sitting.leave_clean)


class Sitting:
    """Nights on one road, in one store."""

    def __init__(self, road: Here) -> None:
        self.road, self.place = road, road.place
        self._survey: Survey | None = None
        self._pinned = ""
        """Content digest of the evaluation set."""

    def night(self, night: Night) -> tuple[str, list[str]]:
        """Run a night until there is a verdict; what came of it, and what is found after it."""
        pinned = checks.reference(self.place, "evaluation_set")
        texts = stored_texts(self.place, checks.output(pinned), "test") if pinned else []
        files = {shard.name: bytes_of(shard, texts) for shard in night.shards}
        last, champion = (checks.reference(self.place, name) for name in ("promote", "champion"))
        began = time.monotonic()
        runs, met, said = self._run(night, self.road.lay(files))
        seconds = time.monotonic() - began
        findings = [f"lost after {runs} runs: {said}"] if said else []
        verdict = "LOST" if said else self._verdict(last)
        if not verdict:
            findings.append("the run ended well without a verdict")
        findings += checks.nothing_is_left(self.place, self.road.running)
        findings += self._store_is_whole()
        garbled = [shard.name for shard in night.shards if shard.kind in (COPY, MOJIBAKE)]
        findings += checks.poison_is_out(self.place, [t for name in garbled for t in texts_in(files[name])])
        findings += self._pointers_are_right(verdict, champion)
        return f"{verdict} after {runs} runs and {seconds:.0f} s {met}".rstrip(), findings

    def _run(self, night: Night, sources: str) -> tuple[int, str, str]:
        """How many runs it took, whether the fault was too late, and the last words of a lost night."""
        runs, met, is_faulty = 0, "", True
        while True:
            try:
                end = self.road.run(night, sources, is_faulty=is_faulty)
            except Skip as reason:
                met, is_faulty = f"(left out: {reason})", False
                continue
            runs += 1
            met = met or end.met
            if end.is_done or runs == TRIES:
                return runs, met, "" if end.is_done else end.said
            is_faulty = False

    def _verdict(self, last: dict[str, Any] | None) -> str:
        """Promote's own word on the night."""
        now = checks.reference(self.place, "promote")
        if now is None:
            return ""
        if last and now["key"] == last["key"]:
            return "nothing new"
        manifest = json.loads(self.place.read(now["manifest_uri"]))
        verdict = self.place.read(f"{checks.output(now)}/{manifest['attempt']}/verdict.json")
        return str(json.loads(verdict)["outcome"])

    def _store_is_whole(self) -> list[str]:
        """Every byte is as its manifest says, by two readers, and nothing that was committed is gone."""
        code, said = self._command("store", "verify")
        before, self._survey = self._survey, survey(self.place)
        failed = [] if code == 0 else [f"yanmo store verify ended with {code}: {said[-400:]}"]
        return [*failed, *self._survey.faults, *(lost(before, self._survey) if before else [])]

    def _pointers_are_right(self, verdict: str, before_it: dict[str, Any] | None) -> list[str]:
        """The evaluation set never changes, and only a verdict moves the champion, to its model."""
        now = (checks.reference(self.place, "evaluation_set") or {}).get("content_digest", "")
        before, self._pinned = self._pinned or now, now
        found = [] if before == now else [f"the evaluation set changed from {before[:12]} to {now[:12]}"]
        champion, model = (checks.reference(self.place, name) for name in ("champion", "train"))
        if champion is None or champion != (model if verdict == "promoted" else before_it):
            found.append(f"{verdict}, and the champion went from {before_it} to {champion}; trained: {model}")
        return found

    def leave_clean(self) -> tuple[str, list[str]]:
        """What is in the store after gc that nothing accounts for; no run is at work."""
        time.sleep(2)
        words = ("--delete", "--older-than", "1s", "--keep-runs", "100000", "--log-level", "warning")
        code, said = self._command("store", "gc", *words)
        failed = [f"yanmo store gc ended with {code}: {said[-600:]}"] if code else []
        failed += self._store_is_whole() if self._survey is None else survey(self.place).faults
        left = [name for name in leftovers(survey(self.place)) if not name.startswith(_OF_LOCAL_RUNS)]
        return "nothing is left", [*failed, *(f"after gc: {name}" for name in left)]

    def _command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `yanmo WORDS` on the store."""
        done = start("yanmo.cli", (*words, f"--store={self.place.uri}"), self.place, self.road.folder)
        return done.wait(), done.text
