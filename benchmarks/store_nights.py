"""Runs consecutive tiny nights in a store, with gc after each, and records what they leave there.

    python benchmarks/store_nights.py --folder /tmp/nights --nights 14 > nights.jsonl

One line a night: bytes and objects by stage that the night made, what the store held before and after gc,
what was promoted, and what would be left of the night's outputs once their data is let go. `store_growth.py`
fits its model to the first nights and is checked against the rest.

Each night adds raw text, and runs the six stages as processes on the demo's commands with a tiny model. Days
pass between the nights by setting the times of all files of the store a day back: gc reads nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from yanmo.promote.history.champion_records import ChampionRecord, all_records
from yanmo.store.let_go import data_of
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.output import find_output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.tools.store.chain import Opener
from yanmo.tools.store.gc_let_go import record
from yanmo.tools.store.inventory import Inventory, take

ROOT = Path(__file__).parents[1]
DAY = 86400
CHANNEL = "main"
SHAPE = (
    "--ranks 1 --batch-rows 8 --context 32 --layers 1 --width 16 --heads 1 --head-width 16 --feed-forward 32 "
    "--tied-head --start random --warmup-steps 1 --valid-characters 300"
)
CURATE = (
    "--workers 1 --max-malformed-share 1 --max-filter-share 1 --test-characters 1000 --valid-characters 500 "
    "--confirm-characters 500"
)
EVALUATE = "--samples 1 --sample-tokens 8 --bootstrap-draws 200 --workers 1"
PROMOTE = "--limits distinct_2>=0 --min-gain 0 --level 0.5 --max-genre-loss 9 --draws 2000"


class Nights:
    """A folder with raw text and a store."""

    def __init__(self, folder: Path, documents: Path) -> None:
        self.root, self.raw = folder / "store", folder / "raw"
        self.raw.mkdir(parents=True, exist_ok=True)
        self._lines = documents.read_bytes().splitlines(keepends=True)
        self.uri = self.root.as_uri()

    @property
    def store(self) -> ObjectStore:
        return open_store(self.uri)

    def add_text(self, night: int, first: int, each: int) -> int:
        """The raw text of a night; its bytes."""
        begin = 0 if night == 1 else first + each * (night - 2)
        lines = self._lines[begin : first + each * (night - 1)]
        if not lines:
            raise SystemExit(f"no raw text is left for night {night}: give less with --first and --each")
        (self.raw / f"night-{night:03d}.jsonl").write_bytes(b"".join(lines))
        return sum(map(len, lines))

    def stage(self, name: str, night: int, *words: str) -> None:
        command = [sys.executable, "-m", "yanmo.cli", name, "--store", self.uri, "--channel", CHANNEL]
        command += ["--inputs", "latest", "--metrics-port", "-1", "--run-id", f"night-{night:03d}", *words]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"night {night}: {name} ended with {result.returncode}\n{result.stderr[-3000:]}")

    def run(self, night: int, steps: int) -> None:
        """The six stages; from the second night on with the channel's tokenizer, as nights do."""
        tokenizer = read_pointer(self.store, CHANNEL, "tokenizer")
        given = ["--tokenizer", f"tokenizer/{tokenizer.key}"] if tokenizer else ["--vocab-size", "512"]
        self.stage("curate", night, "--sources", str(self.raw), *CURATE.split())
        self.stage("balance", night)
        self.stage("tokenize", night, "--workers", "1", *given)
        self.stage("train", night, *SHAPE.split(), "--steps", str(steps), "--seed", "0")
        self.stage("evaluate", night, *EVALUATE.split())
        self.stage("promote", night, *PROMOTE.split())

    def gc(self, *words: str) -> dict[str, Any]:
        """`yanmo store gc --delete`: its document."""
        command = [sys.executable, "-m", "yanmo.cli", "store", "gc", "--store", self.uri, "--delete"]
        done = subprocess.run([*command, "--json", *words], capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def verify(self) -> None:
        """Raise where the store is not whole."""
        command = [sys.executable, "-m", "yanmo.cli", "store", "verify", "--store", self.uri]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def a_day_passes(self) -> None:
        """Every file is a day older."""
        for path in self.root.rglob("*"):
            status = path.lstat()
            os.utime(path, (status.st_atime - DAY, status.st_mtime - DAY), follow_symlinks=False)


def made_by(store: ObjectStore, inventory: Inventory, night: int) -> dict[str, list[int]]:
    """Stage -> bytes and objects of the outputs that this night committed."""
    found: dict[str, list[int]] = {}
    for folder in inventory.keys.values():
        output = find_output(store, folder.stage, folder.key) if folder.manifest else None
        if output and output.manifest.run_id == f"night-{night:03d}":
            each = found.setdefault(folder.stage, [0, 0])
            each[0] += folder.bytes
            each[1] += sum(1 for _ in folder.objects)
    return found


def left_of(root: Path, night: int) -> dict[str, list[int]]:
    """Stage -> bytes and objects of what stays of a night's outputs once their data is let go.

    Tried on a copy of them, by what gc does.
    """
    store = open_store(root.as_uri())
    with tempfile.TemporaryDirectory() as folder:
        copy = open_store(Path(folder).as_uri())
        for stage, key in take(store, leftovers=False).keys:
            output = find_output(store, stage, key)
            if output and data_of(output.manifest) and output.manifest.run_id == f"night-{night:03d}":
                shutil.copytree(root / "cas" / stage / key, Path(folder) / "cas" / stage / key)
                record(copy, output.manifest)
                for entry in data_of(output.manifest):
                    copy.delete(output.wanted(entry).name)
        return made_by(copy, take(copy), night)


def held(inventory: Inventory) -> dict[str, int]:
    """Part of the store -> bytes; `objects` is how many there are."""
    places = {"pointers": inventory.pointers, "sources": inventory.sources, "loose": inventory.runs}
    found = {name: sum(info.bytes for info in infos) for name, infos in places.items()}
    folders = inventory.keys.values()
    found["outputs"] = sum(folder.bytes for folder in folders)
    found["work"] = sum(info.bytes for folder in folders for info in [*folder.work, *folder.deletion_marks])
    found["bytes"] = inventory.bytes
    found["objects"] = sum(len(infos) for infos in places.values()) + sum(
        len([*folder.objects, *folder.work]) for folder in folders
    )
    return found


def champion_rests_on(store: ObjectStore, record: ChampionRecord) -> dict[str, int]:
    """Stage -> how many outputs of it the record of a champion keeps."""
    roots = [open_reference(store, r) for r in (record.model, record.evaluation, record.verdict)]
    chain = Opener(store).chain(roots)
    return dict(
        Counter(one.manifest.stage for one in chain if one.manifest.run_id == roots[0].manifest.run_id)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nights", type=int, default=14)
    parser.add_argument("--documents", type=Path, default=ROOT / "tests/data/documents.jsonl")
    parser.add_argument("--first", type=int, default=44, help="documents of the first night")
    parser.add_argument("--each", type=int, default=10, help="documents of each later one")
    parser.add_argument(
        "--better-every", type=int, default=4, help="every such night trains longer than ever"
    )
    parser.add_argument("--gc", type=str.split, default="--older-than=3d --keep-nights=4", metavar="WORDS")
    options = parser.parse_args()
    nights, freed = Nights(options.folder, options.documents), 0
    for night in range(1, options.nights + 1):
        raw, began = nights.add_text(night, options.first, options.each), time.monotonic()
        is_longer = night % options.better_every == 1
        nights.run(night, 8 + 4 * night if is_longer else 4)
        seconds = time.monotonic() - began
        before = take(nights.store)
        line = {
            "night": night,
            "raw_bytes": raw,
            "seconds": round(seconds, 1),
            "made": made_by(nights.store, before, night),
            "let_go": left_of(nights.root, night),
            "before_gc": held(before),
        }
        records = all_records(nights.store, CHANNEL)
        if records and records[-1].model.key == _latest(nights.store):
            line["champion_rests_on"] = champion_rests_on(nights.store, records[-1])
        swept = nights.gc(*options.gc)
        freed += swept["bytes"]
        line |= {"after_gc": held(take(nights.store)), "freed_so_far": freed, "gc": options.gc}
        nights.verify()
        print(json.dumps(line), flush=True)
        nights.a_day_passes()


def _latest(store: ObjectStore) -> str:
    model = read_pointer(store, CHANNEL, "train")
    return model.key if model else ""


if __name__ == "__main__":
    main()
