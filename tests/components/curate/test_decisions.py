"""Documents that are dropped and changed: the table, the page, a dry run, and messages."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from yanmo.curate.config import STAGE
from yanmo.curate.phases import STEPS
from yanmo.curate.sources.raw_files import below
from yanmo.stage.run import main
from yanmo.tools import command_group
from yanmo.tools.documents.command import TOOL

Record = dict[str, Any]
Run = Callable[..., Any]
ENGLISH = "This page says where all of this came from. " * 100


@pytest.fixture
def folder(lines: list[Record], write_jsonl: Run) -> Path:
    """A folder of everything that is dropped: copies, quotations, another language, what is no record."""
    quoted = [{**r, "text": r["text"][: len(r["text"]) // 2], "source": "quoted"} for r in lines]
    write_jsonl("all/sub/a.jsonl", [*lines, {"text": "短", "genre": "诗"}, "no JSON"])
    write_jsonl("all/sub/copies.jsonl", [{**r, "source": "copy"} for r in lines[:40]])
    path = write_jsonl("all/quoted.jsonl", quoted)
    (path.parent / "_origin.md").write_text(f"# <Origin>\n\n{ENGLISH}", encoding="utf-8")
    return Path(path.parent)


ALLOW = ("--max-overlap-share", "1", "--max-filter-share", "1", "--max-malformed-share", "0.1")


def table(curated: Any) -> list[Record]:
    return list(pq.read_table(curated.output().path("decisions.parquet")).to_pylist())


def test_every_dropped_and_every_changed_document_is_in_the_table(curate: Run, folder: Path) -> None:
    curated = curate(folder, *ALLOW, "--workers", "1")
    rows, report = table(curated), curated.report()
    for reason, genres in report["dropped"].items():
        found = [r for r in rows if r["reason"] == reason]
        assert len(found) == sum(of["documents"] for of in genres.values()), reason
        assert sum(r["characters"] for r in found) == sum(of["characters"] for of in genres.values())
    for change, genres in report["cleaned"].items():
        found = [r for r in rows if change in r["changes"].split(",")]
        assert len(found) == sum(of["documents"] for of in genres.values()), change
    by_path = {f"{r['path']}:{r['line']}": r for r in rows}
    assert by_path["sub/a.jsonl:186"]["reason"] == "malformed" and by_path["sub/a.jsonl:186"]["note"]
    origin = by_path["_origin.md:1"]
    assert (origin["reason"], origin["value"], origin["note"]) == ("not_han", 0.0, "Latin")
    copies = [r for r in rows if r["reason"] == "duplicate"]
    assert copies and all(
        r["other_path"].partition(":")[0] in ("sub/a.jsonl", "sub/copies.jsonl") for r in copies
    )
    overlapping = [r for r in rows if r["reason"] == "overlap"]
    assert overlapping and all(len(r["note"]) >= 13 and 0 < r["value"] <= 1 for r in overlapping)
    page = curated.output().path("report.md").read_text(encoding="utf-8")
    assert "| not\\_han | 3 |" in page and "| malformed | 1 |" in page and "\n| sub/ | 225 |" in page
    assert not (curated.output().path("report.md").parent / "scratch-copies").exists()
    again = curate(folder, *ALLOW, "--workers", "2", "--batch-bytes", "4096", store="again")
    assert table(again) == rows


@pytest.mark.long
def test_a_dry_run_shows_what_a_run_makes_and_leaves_nothing(
    curate: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = curate(folder, *ALLOW, "--dry-run", "true")
    said = capsys.readouterr().err
    assert not dry.root.exists()
    curated = curate(folder, *ALLOW, store="made")
    kept = curated.report()["kept"].values()
    documents, characters = (sum(of[what] for of in kept) for what in ("documents", "characters"))
    assert re.search(rf"all +\d+ +{documents} +{characters:,}\n", said) and "sub/" in said
    for reason, genres in curated.report()["dropped"].items():
        number = sum(of["documents"] for of in genres.values())
        assert re.search(rf"{reason} +{number} ", said), reason
    assert "_origin.md:1 Latin" in said
    assert re.search(r"malformed +\d+ +- +-  sub/a\.jsonl:186\n", said), "each in its own column"
    (folder / "_origin.md").write_text(ENGLISH * 20, encoding="utf-8")
    curate(folder, "--dry-run", "true", *ALLOW[:2], *ALLOW[4:], expect=65)  # as the run would end
    said = capsys.readouterr().err
    assert (
        "characters kept" in said and "--max-filter-share 0." in said and "_origin.md:1 (0.0, Latin)" in said
    )
    assert "to see what is dropped" not in said


def test_a_dry_run_needs_no_cluster(curate: Run, lines: list[Record], write_jsonl: Run) -> None:
    """It writes to a folder of this machine, which no node of one sees."""
    curate(write_jsonl("a.jsonl", lines), *ALLOW, "--dry-run", "true", "--engine", "ray")


def test_a_share_counts_characters_and_shows_its_own_genre(
    curate: Run, lines: list[Record], write_jsonl: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [{"text": ENGLISH + str(n), "genre": "诗", "title": "long"} for n in range(2)]
    short = [{"text": f"{n} words and no more", "genre": "zz", "title": "short"} for n in range(9)]
    curate(write_jsonl("a.jsonl", [*lines, *long, *short]), "--max-filter-share", "0.4", expect=65)
    said = capsys.readouterr().err
    assert re.search(r"not_han takes 3 of 1\d\d documents and .* of genre 诗", said) is not None
    shown = said.partition("allowed share 0.4: ")[2].partition(". To drop")[0]
    assert shown.count("a.jsonl:") == 3 and "words and" not in shown
    assert "to see what is dropped, --dry-run" in said


def test_the_share_that_an_error_names_is_enough(
    curate: Run, lines: list[Record], write_jsonl: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a later filter drops more of a genre than the one that is named."""
    english = [{"text": ENGLISH + str(n), "genre": "诗", "title": ""} for n in range(20)]
    short = [{"text": "短" + "，" * n, "genre": "诗", "title": ""} for n in range(60)]
    source = write_jsonl("a.jsonl", [*lines, *english, *short])
    curate(source, "--max-filter-share", "0.01", expect=65)
    said = capsys.readouterr().err
    share = re.search(r"--max-filter-share (0\.\d+) \(which also allows the other [1-9]", said)
    assert share is not None
    curate(source, "--max-filter-share", share[1])
    curate(source, "--max-filter-share", str(float(share[1]) - 0.01), expect=65)


def test_kfp_is_shown_the_page(folder: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    names = {"documents": "Dataset", "evaluation_set": "Dataset", "report": "Markdown"}
    artifacts = {
        name: {"artifacts": [{"uri": str(outputs / name), "type": {"schemaTitle": f"system.{kind}"}}]}
        for name, kind in names.items()
    }
    asked = {"outputs": {"artifacts": artifacts, "outputFile": str(outputs / "executor.json")}}
    argv = ["--sources", str(folder), "--store", str(tmp_path / "store"), "--metrics-port", "-1", *ALLOW]
    for _ in range(2):  # made, and found
        assert main(STAGE, STEPS, [*argv, "--executor-input", json.dumps(asked)]) == 0
        assert (outputs / "report").read_text(encoding="utf-8").startswith("# What is kept for training")
        (outputs / "report").unlink()


def test_a_person_looks_at_decisions_and_at_what_cleaning_did(
    curate: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "marked.txt").write_text("床前<b>明月</b>光，疑是地上霜。举头望明月。", encoding="utf-8")
    ends = {"text": "海上生明月，天涯共此时。情人怨遥夜，竟夕起相思。\n", "genre": "诗", "title": "望月怀远"}
    (folder / "ends.jsonl").write_text(json.dumps(ends, ensure_ascii=False) + "\n", encoding="utf-8")
    curated = curate(folder, *ALLOW)
    store = ("--store", str(curated.root))
    capsys.readouterr()
    assert command_group.main(TOOL, ["show", "latest", "--reason", "not_han", *store]) == 0
    said = capsys.readouterr().out
    assert "_origin.md:1\n  not_han 0; text " in said and "  overlap" not in said
    assert (
        command_group.main(
            TOOL, ["show", "latest", "--change", "markup", "--path", "marked", "--json", *store]
        )
        == 0
    )
    (row,) = json.loads(capsys.readouterr().out)
    place = f"{row['path']}:{row['line']}"
    assert command_group.main(TOOL, ["diff", "latest", place, "--sources", str(folder), *store]) == 0
    assert "床前[-<b>-]明月[-</b>-]光，疑是地上霜。" in capsys.readouterr().out
    assert command_group.main(TOOL, ["diff", "latest", "ends.jsonl:1", "--sources", str(folder), *store]) == 0
    said = capsys.readouterr().out
    assert "changed by nothing but white space\n" in said and "[-\\n-]" in said
    (folder / "marked.txt").write_text("床前明月光，疑是地上霜。举头望明月。", encoding="utf-8")
    assert command_group.main(TOOL, ["diff", "latest", place, "--sources", str(folder), *store]) == 65
    assert command_group.main(TOOL, ["diff", "latest", "marked", "--sources", str(folder), *store]) == 64


def test_a_file_is_named_by_its_path_below_its_place(tmp_path: Path) -> None:
    inner = tmp_path / "a b" / "诗"
    inner.mkdir(parents=True)
    uri = (inner / "x.txt").as_uri()
    for place, name in (
        (tmp_path, "a b/诗/x.txt"),
        (inner, "x.txt"),
        (inner / "x.txt", "x.txt"),
        (tmp_path / "*" / "*.txt", "a b/诗/x.txt"),
        (Path("/"), uri and str(inner / "x.txt")[1:]),
    ):
        assert below(str(place))(uri) == name
    for place, name in (("s3://b/p", "q/x.txt"), ("s3://b/p/", "q/x.txt"), ("s3://b/p/q/x.txt", "x.txt")):
        assert below(place)("s3://b/p/q/x.txt") == name
    assert below("s3://b/p/*.txt")("s3://b/p/q%20/x.txt") == "q /x.txt"


def test_a_run_beside_which_another_pinned_a_set_is_run_again_with_that_one(
    curate: Run, lines: list[Record], write_jsonl: Run, tmp_path: Path
) -> None:
    mine, other = write_jsonl("a.jsonl", lines), write_jsonl("b.jsonl", lines[20:])

    beside = []

    def beaten(run: Any) -> Any:
        beside.append(curate(other))
        return STEPS.work(run)

    argv = ["--sources", str(mine), "--store", str(tmp_path / "store"), "--metrics-port", "-1"]
    assert main(STAGE, dataclasses.replace(STEPS, work=beaten), argv) == 75
    (first,) = beside
    pinned = first.output("evaluation_set").reference
    assert len(first.rows("train")) < len(lines) - 20, "the pointer to documents is the other run's"
    again = curate(mine)
    assert again.output("evaluation_set").reference == pinned
    assert again.output().part("evaluation_set").reference == pinned
