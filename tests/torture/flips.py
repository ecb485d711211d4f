"""One flipped bit in each kind of object: it must be found and named, and never change a result.

A bit is flipped in one object of a finished store, then a stage that reads it is asked for something new.
Right are: exit code 65 with the object's name in the message; or exit code 0 with the very content that the
undamaged store gives, where the object is not needed (a lease, a memory of digests) or the bit says nothing.
"""

from __future__ import annotations

import fnmatch
import json
import os
import random
import stat
from dataclasses import dataclass
from pathlib import Path

from torture.events import Listener
from torture.ground import Ground, Record
from torture.place import Place, survey
from torture.profile import roots
from torture.stages import CHANNEL, Run, run_stage, start_stage

_NEW: dict[str, tuple[str, ...]] = {
    "curate": ("--min-han-characters", "11", "--pointer", "none"),
    "balance": ("--seed", "7", "--pointer", "none"),
    "tokenize": ("--agreement-sentences", "51", "--pointer", "none"),
    "promote": ("--seed", "7", "--pointer", "none"),
}
"""Stage -> flags that ask it for something that is not committed yet."""


@dataclass(frozen=True)
class Kind:
    """A kind of object, and who reads it."""

    name: str
    pattern: str
    reader: str
    times: int


KINDS = (
    Kind("manifest", "cas/curate/*/MANIFEST.json", "balance", 12),
    Kind("content file", "cas/curate/*/*/train-*.parquet", "balance", 4),
    Kind("record file", "cas/train/*/*/metrics.jsonl", "promote", 3),
    Kind("pointer", f"pointers/{CHANNEL}/curate.json", "balance", 12),
    Kind("champion pointer", f"pointers/{CHANNEL}/champion.json", "promote", 8),
    Kind("champion's record", f"pointers/{CHANNEL}/history/000001.json", "promote", 6),
    Kind("lease", "runs/balance/*/LEASE.json", "balance", 4),
    Kind("memory of source digests", "sources/*.json", "curate", 6),
)


def run(ground: Ground, record: Record, times: int | None = None) -> None:
    """Flip bits in every kind of object; `times` of each instead of the usual number."""
    wanted = [k for k in KINDS if k.reader in ground.stages and not record.has("flip", k.name)]
    with ground.place() as place:
        for stage in ground.stages if wanted else ():
            run_stage(stage, place, ground.folder)
        for kind in wanted:
            record.case("flip", kind.name, lambda kind=kind: _flip(ground, place, kind, times or kind.times))
        record.case("flip", "reference file", lambda: _flip_reference(ground, place, times or 8))
        if ground.kind == "s3":
            record.case("flip", "scratch", lambda: _flip_scratch(ground, place))
    if "train" in ground.stages:
        record.case("flip", "checkpoint", lambda: _flip_checkpoint(ground))


def flipped(data: bytes, draw: random.Random) -> bytes:
    """`data` with one bit turned."""
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


class Trial:
    """Asks a reader for something new, and compares with what the undamaged store gives."""

    def __init__(self, ground: Ground, place: Place, reader: str, *flags: str) -> None:
        self.ground, self.place, self.reader = ground, place, reader
        self.flags = (*_NEW[reader], *flags)
        before = set(place.names())
        run_stage(reader, place, ground.folder, *self.flags)
        self.expected, self._made = self._result(before)
        place.delete(self._made)
        self.before = set(place.names())

    def _result(self, before: set[str]) -> tuple[str, list[str]]:
        """Content digests of what is committed besides `before`, and its names."""
        made = sorted(n for n in set(self.place.names()) - before if n.startswith("cas/"))
        manifests = [n for n in made if n.endswith("/MANIFEST.json")]
        digests = [json.loads(self.place.read(n))["content_digest"] for n in manifests]
        return " ".join(digests), made

    def read(self, *damaged: str) -> tuple[str, str]:
        """What the reader did: one of found, right, unnamed, wrong; and the log."""
        run = start_stage(self.reader, self.place, self.ground.folder, *self.flags)
        code = run.wait()
        digests, made = self._result(self.before)
        self.place.delete(made)
        if code == 0:
            return ("right" if digests == self.expected else "wrong"), run.text
        if digests or code != 65:
            return "wrong", f"exit code {code}, committed {digests or 'nothing'}: {run.text}"
        named = any(name in run.text or os.path.basename(name) in run.text for name in damaged)
        return ("found" if named else "unnamed"), run.text


def _flip(ground: Ground, place: Place, kind: Kind, times: int) -> tuple[str, list[str]]:
    draw = random.Random(f"{ground.seed}/{kind.name}")
    trial = Trial(ground, place, kind.reader)
    names = [n for n in place.names() if fnmatch.fnmatchcase(n, kind.pattern)]
    assert names, f"no {kind.pattern}"
    said: list[str] = []
    findings: list[str] = []
    for _ in range(times):
        name = draw.choice(names)
        data = place.read(name)
        wrong = flipped(data, draw)
        place.write(name, wrong)
        place.forget_scratch()
        try:
            what, log = trial.read(name)
        finally:
            place.write(name, data)
        said.append(what)
        if what in ("wrong", "unnamed"):
            findings.append(f"{what}: {_difference(data, wrong)} in {name}: {log[-900:]}")
    return _counts(said), findings


def _difference(data: bytes, wrong: bytes) -> str:
    at = next(n for n, (a, b) in enumerate(zip(data, wrong, strict=True)) if a != b)
    return f"byte {at}: ...{data[max(0, at - 30) : at + 10]!r} -> {wrong[at : at + 1]!r}"


def _counts(said: list[str]) -> str:
    words = {"found": "found and named", "right": "without effect", "unnamed": "not named", "wrong": "wrong"}
    return ", ".join(f"{said.count(k)} {text}" for k, text in words.items() if k in said)


def _flip_reference(ground: Ground, place: Place, times: int) -> tuple[str, list[str]]:
    draw = random.Random(f"{ground.seed}/reference")
    path = ground.folder / "documents.reference"
    good = place.read(f"pointers/{CHANNEL}/curate.json")
    path.write_bytes(good)
    trial = Trial(ground, place, "balance", "--documents", str(path))
    said, findings = [], []
    for _ in range(times):
        wrong = flipped(good, draw)
        path.write_bytes(wrong)
        what, log = trial.read(str(path))
        said.append(what)
        if what in ("wrong", "unnamed"):
            findings.append(f"{what}: {_difference(good, wrong)} in a reference file: {log[-900:]}")
    return _counts(said), findings


def _flip_scratch(ground: Ground, place: Place) -> tuple[str, list[str]]:
    """In the read cache: written to by a careless process, and rotten without a trace in the file's times."""
    trial = Trial(ground, place, "balance")
    outcome, findings = [], []
    for how in ("written to", "rotten"):
        files = [p for p in place.scratch.glob("objects/??/*") if p.is_file() and not p.suffix]
        assert files, "nothing in the scratch cache"
        for path in files:
            status = path.stat()
            path.chmod(0o644)
            path.write_bytes(flipped(path.read_bytes(), random.Random(str(path))))
            path.chmod(stat.S_IMODE(status.st_mode))
            if how == "rotten":
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        what, log = trial.read("objects/")
        outcome.append(f"{how}: {what}")
        if what == "wrong":
            findings.append(f"scratch {how}: {log[-900:]}")
        for path in files:
            path.unlink(missing_ok=True)
    return ", ".join(outcome), findings


def _flip_checkpoint(ground: Ground) -> tuple[str, list[str]]:
    """Training is killed after its second checkpoint, whose files then change."""
    expected = ground.profile.survey.digests[f"pointers/{CHANNEL}/train.json"]
    draw = random.Random(f"{ground.seed}/checkpoint")
    outcome, findings = [], []
    with ground.place() as place:
        for stage in ("curate", "balance", "tokenize"):
            run_stage(stage, place, ground.folder)
        _kill_after_checkpoints(ground, place, 2)
        newest = sorted(_work(place).glob("runs/train/*/checkpoints/step-*"))[-1]
        for path in (p for p in sorted(newest.iterdir()) if p.suffix == ".safetensors"):
            path.write_bytes(flipped(path.read_bytes(), draw))
        run = start_stage("train", place, ground.folder)
        code = run.wait()
        found = survey(place).digests.get(f"pointers/{CHANNEL}/train.json")
        if code or found != expected:
            findings.append(f"exit code {code}, model {found}, expected {expected}: {run.text[-900:]}")
        if f"{newest.name} is damaged" not in run.text:
            findings.append(f"the damage of {newest.name} was not named: {run.text[-900:]}")
        outcome.append(f"{newest.name} refused, resumed from the one before, same model")
    return ("; ".join(outcome) if not findings else "see findings"), findings


def _work(place: Place) -> Path:
    """Where checkpoints lie: in the store's own folder, or below scratch."""
    root = getattr(place, "root", None)
    if root is not None:
        return Path(root)
    (found,) = {p.parents[4] for p in place.scratch.glob("work/**/runs/train/*/checkpoints/latest")}
    return found


def _kill_after_checkpoints(ground: Ground, place: Place, count: int) -> Run:
    """Train until `count` checkpoints are committed and the next is about to be, then kill -9."""
    with Listener(ground.folder / "witness-checkpoint", roots(place)) as listener:
        run = start_stage("train", place, ground.folder, environment={"YANMO_WITNESS": str(listener.path)})
        event = next(e for e in ground.profile.events["train"] if e.writer == "checkpoint")
        listener.on(event.kind, event.name, count, run.kill_all)
        run.wait()
    return run
