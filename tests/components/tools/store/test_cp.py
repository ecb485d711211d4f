"""cp: a whole chain arrives, verified, in any order of kills, and nothing at the target is overwritten."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ground import Ground, folder_of, ids

from yanmo.common.errors import ExitCode
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

ROOT = Path(__file__).parents[4]
KILLED = Path(__file__).parents[2] / "killed_writes.py"


@pytest.fixture
def target(tmp_path: Path) -> Ground:
    return Ground(str(tmp_path / "target"))


def test_a_chain_arrives_with_its_references_and_pointer(ground: Ground, target: Ground) -> None:
    ground.chain()
    result = ground.tool("cp", "demo/champion", "--to", target.uri, "--pointer", "prod/champion")
    assert result.code == 0 and "4 outputs" in result.out and "0 outputs were there" in result.out
    assert read_pointer(target.store, "prod", "champion") == ground.outputs["model"].reference
    assert target.tool("verify").out.startswith("whole: 4 outputs, 9 files")
    assert target.gc().code == 0 and target.tool("verify", "prod/champion").code == 0
    assert "4 outputs were there" in ground.tool("cp", "demo/champion", "--to", target.uri).out


def test_a_channel_with_a_history_sets_the_champion_back_and_cp_says_so(
    folder_ground: Ground, target: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    folder_ground.chain()
    target.chain()
    copy = ("cp", "demo/champion", "--to", target.uri, "--pointer")
    for pointer in ("prod/champion", "demo/train"):
        assert folder_ground.tool(*copy, pointer).code == 0 and "yanmo promote set" not in caplog.text
    assert folder_ground.tool(*copy, "demo/champion").code == 0
    assert f"yanmo promote set train/{folder_ground.outputs['model'].manifest.key}" in caplog.text


def test_it_goes_to_s3_and_back(ground: Ground, folder_ground: Ground, target: Ground) -> None:
    folder_ground.chain()
    assert (
        folder_ground.tool("cp", "demo/champion", "--to", ground.uri, "--pointer", "demo/champion").code == 0
    )
    assert ground.tool("verify").code == 0
    assert ground.tool("cp", "demo/champion", "--to", target.uri).code == 0
    assert target.tool("verify").out == ground.tool("verify").out


def test_a_chain_larger_than_the_scratch_cap_is_copied_and_searched(
    ground: Ground, target: Ground, tmp_path: Path
) -> None:
    """Each file is given back after its use: six of 0.4 MB pass through a scratch of 1 MB."""
    output = None
    for number in range(6):
        inputs = {"before": output} if output else {}
        output = ground.commit("documents", inputs=inputs, text=f"{number}" * 400_000)
    assert output is not None
    what = f"documents/{output.manifest.key}"
    cap = ("--scratch", str(tmp_path / "small"), "--scratch-gib", "0.001")
    result = ground.tool("cp", what, "--to", target.uri, *cap)
    assert result.code == 0 and "6 outputs" in result.out
    assert target.tool("verify").code == 0
    table = output.entries("*.parquet")[0].bytes
    cap = ("--scratch", str(tmp_path / "smaller"), "--scratch-gib", str(2.5 * table / 2**30))
    assert ground.tool("lineage", ids()[0], *cap).out.count("rows in train-") == 6


def test_after_a_kill_it_sends_only_what_is_missing(folder_ground: Ground, target: Ground) -> None:
    folder_ground.chain()
    copy = ["cp", "demo/champion", "--to", target.uri]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    command = [sys.executable, str(KILLED), "5", *copy, "--store", folder_ground.uri]
    ended = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert target.tool("verify").code == 0, "what is committed is whole"
    result = folder_ground.tool(*copy)
    sent = re.search(r": (\d+) files", result.out)
    assert result.code == 0 and sent and 0 < int(sent[1]) < 9, result.out
    assert target.tool("verify").out.startswith("whole: 4 outputs, 9 files")


def test_a_damaged_source_file_stops_it_before_the_manifest(folder_ground: Ground, target: Ground) -> None:
    folder_ground.chain()
    folder_ground.outputs["cache"].path("content.txt").write_bytes(b"xyz")
    assert folder_ground.tool("cp", "demo/champion", "--to", target.uri).code == ExitCode.DATA
    committed = {name.split("/")[1] for name in target.names() if name.endswith("MANIFEST.json")}
    assert committed == {"documents", "tokenizer"}


def test_a_wrong_file_at_the_target_is_sent_again(folder_ground: Ground, target: Ground) -> None:
    folder_ground.chain()
    documents = folder_ground.outputs["documents"]
    target.write(f"{folder_of(documents)}/{documents.manifest.attempt}/content.txt", b"xyz")
    assert folder_ground.tool("cp", "demo/champion", "--to", target.uri).code == 0
    assert target.tool("verify").code == 0


def test_other_content_of_the_same_key_at_the_target_stays_and_both_can_be_read(
    folder_ground: Ground, target: Ground
) -> None:
    folder_ground.chain()
    model = folder_ground.outputs["model"]
    theirs = target.commit("train", inputs=model.manifest.inputs, seed=1, text="别处做的")
    assert theirs.manifest.key == model.manifest.key
    command = ("cp", "demo/champion", "--to", target.uri, "--pointer", "demo/champion")
    for _ in range(2):
        assert folder_ground.tool(*command).code == 0
    ours = open_reference(target.store, model.reference)
    assert ours.path("content.txt").read_text(encoding="utf-8") == "新"
    assert (
        open_reference(target.store, theirs.reference).path("content.txt").read_text(encoding="utf-8")
        == "别处做的"
    )
    assert target.tool("verify").code == 0
    assert target.gc().code == 0 and target.tool("verify", "demo/champion").code == 0


def test_a_copy_onto_itself_or_two_outputs_for_one_pointer_are_refused(
    folder_ground: Ground, target: Ground
) -> None:
    folder_ground.chain()
    assert folder_ground.tool("cp", "demo/champion", "--to", folder_ground.uri).code == ExitCode.USAGE
    twice = ("cp", "demo/champion", "demo/champion", "--to", target.uri, "--pointer", "a/b")
    assert folder_ground.tool(*twice).code == ExitCode.USAGE
    assert (
        folder_ground.tool("cp", "demo/champion", "--to", target.uri, "--pointer", "a").code == ExitCode.USAGE
    )
    assert not Path(target.uri).exists()
