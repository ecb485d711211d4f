"""ls, show, diff, lineage, and how a person names an output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ground import Ground, ids

from yanmo.common.errors import ExitCode
from yanmo.store.commit import Recipe
from yanmo.store.runs.lease import Lease

ROOT = Path(__file__).parents[4]


def test_ls_says_of_each_output_its_state_and_who_names_it(ground: Ground) -> None:
    ground.chain()
    lost = ground.unwanted()
    ground.write(f"cas/train/{'a' * 64}/0123456789ab/half.bin")
    ground.write(f"runs/train/{'b' * 64}/checkpoints/step-1")
    lease = Lease(ground.store, f"runs/train/{'c' * 64}/LEASE.json", "0123456789ab")
    assert lease.acquire()
    found = ground.tool("ls", "--json").json
    lease.release()
    by_key = {row["key"]: row for row in found["outputs"]}
    assert by_key[ground.outputs["model"].manifest.key]["pointers"] == [
        "demo/champion",
        "demo/history/000001",
    ]
    assert by_key[ground.outputs["documents"].manifest.key]["used_by"]
    assert by_key[lost.manifest.key]["pointers"] == by_key[lost.manifest.key]["used_by"] == []
    states = {letter: by_key[letter * 64]["status"] for letter in "abc"}
    assert states == {"a": "uncommitted", "b": "stopped", "c": "working"}
    assert found["pointers"] == {"demo/champion": f"train/{ground.outputs['model'].manifest.key}"}


def test_ls_shows_tables_and_filters(ground: Ground) -> None:
    ground.chain()
    said = ground.tool("ls").out
    assert "demo/champion" in said and said.count("train/") >= 3
    assert "documents/" not in ground.tool("ls", "--stage", "cache").out
    assert "cache/" not in ground.tool("ls", "--channel", "demo").out


@pytest.mark.parametrize("data", [b"{}", b"\xff", None])
def test_ls_shows_a_damaged_or_misplaced_pointer_instead_of_failing(
    folder_ground: Ground, data: bytes | None
) -> None:
    """It is the tool to look with."""
    ground = folder_ground.chain()
    name = "pointers/demo/champion.json"
    ground.store.delete(name)
    ground.write(name, ground.outputs["cache"].reference.to_json().encode() if data is None else data)
    said = ground.tool("ls")
    assert said.code == 0 and "damaged: demo/champion: " in said.out and "demo/history/000001" in said.out
    assert "documents/" in said.out
    assert list(ground.tool("ls", "--json").json["damaged_pointers"]) == ["demo/champion"]
    assert "damaged: " not in ground.tool("ls", "--channel", "other").out


def test_ls_shows_a_damaged_manifest_instead_of_failing(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    (ground.folder.root / ground.outputs["cache"].reference.manifest_uri).write_bytes(b"{")
    said = ground.tool("ls")
    assert said.code == 0 and "damaged" in said.out


def test_a_prefix_of_two_keys_is_refused(folder_ground: Ground) -> None:
    made: dict[str, int] = {}
    number = 0
    while True:  # two of a few hundred keys share four digits
        key = Recipe(stage="toy", revision=1, semantic={"number": number}, inputs={}).key[:4]
        if key in made:
            break
        made[key] = number
        number += 1
    for one in (made[key], number):
        folder_ground.commit("toy", number=one)
    assert folder_ground.tool("show", f"toy/{key}").code == ExitCode.USAGE


def test_show_tells_a_person_what_made_an_output(ground: Ground) -> None:
    said = ground.chain().tool("show", "demo/champion").out
    for text in (
        "named by  demo/champion",
        "cache = cache/",
        "seed = 1",
        "characters = 1",
        "content.txt",
        "none seen",
    ):
        assert text in said


def test_diff_names_the_first_cause_however_deep_it_is(ground: Ground) -> None:
    ground.chain()
    raw = {
        "content_digest": "6" * 64,
        "uri": "file:///raw",
        "files": [{"name": "a.jsonl", "sha256": "1" * 64}],
    }
    documents = ground.commit("documents", inputs={"sources": raw}, text="別", minimum=3)
    cache = ground.commit("cache", inputs={"documents": documents}, text="別")
    model = ground.commit("train", inputs={"cache": cache}, seed=1, text="別")
    said = ground.tool("diff", "demo/champion", f"train/{model.manifest.key}")
    assert said.code == 0
    causes = said.out.partition("first causes")[2]
    assert "documents: option minimum: absent / 3" in causes and "raw file a.jsonl: absent / 1111" in causes
    assert "input tokenizer" in causes
    assert "different content" in said.out


def test_diff_of_one_option_and_of_equal_outputs(ground: Ground) -> None:
    ground.chain()
    old = ground.outputs["old"].manifest.key
    said = ground.tool("diff", "demo/champion", f"train/{old}").out
    assert "first cause\n  train: option seed: 1 / 0" in said
    assert "the same content" in ground.tool("diff", "demo/champion", "demo/champion").out


def test_diff_compares_with_another_store_and_finds_chance(ground: Ground, tmp_path: Path) -> None:
    ground.chain()
    other = Ground(str(tmp_path / "other"))
    made = other.commit("train", inputs=ground.outputs["model"].manifest.inputs, seed=1, text="偶然")
    assert made.manifest.key == ground.outputs["model"].manifest.key
    said = ground.tool("diff", "demo/champion", f"train/{made.manifest.key}", "--other-store", other.uri)
    assert said.code == 0 and "equal options, inputs and revision, other bytes" in said.out


def test_lineage_lists_what_holds_a_document_and_what_rests_on_it(ground: Ground) -> None:
    ground.chain()
    document = ids()[1]
    (found,) = ground.tool("lineage", document, "--json").json
    documents = f"documents/{ground.outputs['documents'].manifest.key}"
    assert found["held_by"] == {documents: {"train-00000-of-00001.parquet": 1}}
    assert sorted(name.partition("/")[0] for name in found["rests_on_them"]) == [
        "cache",
        "tokenizer",
        "train",
        "train",
    ]
    said = ground.tool("lineage", document).out
    assert "demo/champion" in said and "rows in train-00000-of-00001.parquet (1)" in said


def test_lineage_of_an_unknown_document_holds_nothing(folder_ground: Ground) -> None:
    said = folder_ground.chain().tool("lineage", "0" * 64)
    assert said.code == 0 and "no output of this store holds it" in said.out


def test_lineage_of_an_output_goes_up_to_raw_files_and_down_to_models(ground: Ground) -> None:
    ground.chain()
    said = ground.tool("lineage", f"cache/{ground.outputs['cache'].manifest.key[:12]}").out
    assert "sources = 0 raw file(s), file:///raw/tang.jsonl" in said
    assert said.partition("and these rest on it")[2].count("train/") == 2


def yanmo_store(*argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    command = [sys.executable, "-m", "yanmo.cli", "store", *argv]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_every_subcommand_has_help_that_says_what_it_does() -> None:
    said = yanmo_store("--help").stdout
    for name in ("ls", "show", "verify", "diff", "gc", "cp", "lineage"):
        assert f"\n  {name} " in said
    assert "a dry run by default" in " ".join(yanmo_store("gc", "--help").stdout.lower().split())


@pytest.mark.parametrize("argv", [[], ["lss"], ["gc", "--detele"], ["show"], ["ls", "--store", "ftp://x"]])
def test_a_wrong_command_line_ends_with_64_and_no_traceback(argv: list[str]) -> None:
    said = yanmo_store(*argv)
    assert said.returncode == 64 and "Traceback" not in said.stderr


def test_a_closed_pipe_is_no_error(folder_ground: Ground) -> None:
    folder_ground.chain()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    tool = f"{sys.executable} -m yanmo.cli store ls --json --store {folder_ground.uri}"
    said = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {tool} | head -c 1"], env=env, capture_output=True, text=True
    )
    assert said.returncode == 0 and not said.stderr


def test_an_empty_or_absent_store_is_no_error_but_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ground = Ground(str(tmp_path / "none"))
    for command in ("ls", "verify", "gc"):
        assert ground.tool(command).code == 0
        said = capsys.readouterr().err
        assert f"{tmp_path}/none holds nothing" in said and "--store" in said, "it may be a misspelt path"
    assert not (tmp_path / "none").exists(), "looking makes nothing"
