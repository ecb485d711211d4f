"""A channel from before there was a confirmation split gets one, and its next night is confirmed on it.

The six real stages, as processes, on 184 documents and models of one layer.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

SOURCES = Path(__file__).parent / "data" / "documents.jsonl"
CURATE = (
    *("--sources", str(SOURCES), "--workers", "1", "--min-split-documents", "2"),
    *("--max-malformed-share", "1", "--max-filter-share", "1"),
)
BALANCE = ("--quotas", "诗=50%,*=200%")
TOKENIZE = ("--workers", "1", "--vocab-size", "1024", "--agreement-sentences", "50", "--judged", "16")
TRAIN = (
    *("--layers", "1", "--width", "32", "--heads", "2", "--head-width", "16", "--feed-forward", "64"),
    *("--warmup-steps", "1", "--batch-rows", "8", "--ranks", "1", "--backend", "torch", "--start", "random"),
    *("--checkpoint-steps", "0", "--valid-characters", "500"),
)
EVALUATE = (
    *("--workers", "1", "--samples", "1", "--sample-tokens", "8", "--bootstrap-draws", "100"),
    *("--baseline-characters", "20000"),
)
PROMOTE = ("--limits=", "--draws", "2000")
"""Without limits on samples: these models write nothing worth reading."""


class Channel:
    """Real stages on a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, stage: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            f"yanmo.{stage}",
            "--store",
            str(self.folder),
            "--metrics-port",
            "-1",
        ]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    def done(self, stage: str, *options: str) -> None:
        finished = self.run(stage, *options)
        assert finished.returncode == 0, finished.stderr

    def output(self, pointer: str) -> Output:
        store = open_store(str(self.folder))
        reference = read_pointer(store, "dev", pointer)
        assert reference is not None
        return open_reference(store, reference)

    def verdict(self) -> dict:
        return json.loads(self.output("promote").path("verdict.json").read_text(encoding="utf-8"))

    def night(self, steps: int, *curated: str) -> None:
        """From the text to an evaluated challenger."""
        self.done("curate", *CURATE, *curated)
        self.done("balance", *BALANCE)
        self.done("tokenize", *TOKENIZE, "--tokenizer", "none" if curated else "latest")
        self.done("train", *TRAIN, "--steps", str(steps))
        self.done("evaluate", *EVALUATE)


def ids(output: Output, split: str) -> set[str]:
    paths = output.paths(f"{split}-*.parquet")
    return {
        id
        for path in paths
        for id in pq.read_table(path, columns=["id"], partitioning=None)["id"].to_pylist()
    }


@pytest.mark.road
def test_an_old_channel_gets_a_confirmation_split_and_its_next_night_is_confirmed(tmp_path):
    channel = Channel(tmp_path / "store")
    channel.night(2, "--confirm-characters", "0")
    channel.done("promote", *PROMOTE)
    old, champion = channel.output("evaluation_set"), channel.output("champion")
    assert not old.entries("confirm-*.parquet") and channel.verdict()["promote"]

    channel.done("curate", *CURATE, "--confirm-share", "0.1", "--add-confirmation")
    added = channel.output("evaluation_set")
    confirm = ids(added, "confirm")
    assert confirm and ids(added, "test") == ids(old, "test")

    channel.night(40)
    assert not confirm & ids(channel.output("curate"), "train")
    refused = channel.run("promote", *PROMOTE)
    assert refused.returncode == 65 and "were not measured alike" in refused.stderr
    named = re.search(r"`yanmo evaluate ([^`]*)`", refused.stderr)
    assert named is not None, refused.stderr
    channel.done("evaluate", *EVALUATE, *shlex.split(named[1]))
    channel.done("promote", *PROMOTE)

    verdict = channel.verdict()
    (rule,) = [check for check in verdict["checks"] if check["name"] == "confirmed"]
    assert verdict["promote"] and rule["passed"]
    assert verdict["confirmation"]["documents"] == len(confirm) and verdict["confirmation"]["lowest"] > 0
    assert "Confirmed: +" in verdict["sentence"]["en"]
    assert channel.output("champion").content_digest != champion.content_digest
