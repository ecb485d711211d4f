"""What the phases promise together: shards, increments, the pinned set, groups, benchmarks."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import damaged

from yanmo.common.logs import forget_progress, progress
from yanmo.curate.duplicates.shingle_sets import Sets, similarities
from yanmo.curate.text.normalize import is_han
from yanmo.tools.store.command import main as store_tool

FIXTURE = Path(__file__).parents[2] / "data" / "documents.jsonl"
Run = Callable[..., Any]
Record = dict[str, Any]


def with_copies(lines: list[Record]) -> list[Record]:
    """The fixture, some exact copies, with equal ids too, and some damaged ones."""
    exact = [{**r, "source": "again"} for r in lines[::6]] + [{**r, "author": "又"} for r in lines[::5]]
    near = [{**r, "text": damaged(r["text"], i), "source": "near"} for i, r in enumerate(lines[::4])]
    return [*lines, *exact, *near]


def digests(curated: Any) -> tuple[str, str]:
    return curated.output().content_digest, curated.output("evaluation_set").content_digest


def without_paths(curated: Any) -> dict[str, Any]:
    """The report without the places of its examples."""
    report: dict[str, Any] = curated.report()
    for example in (one for some in report["examples"].values() for one in some):
        del example["path"]
    return report


def forget_all_but_maps(root: Path) -> None:
    """Leave in a store what a run leaves that was killed when its text was mapped."""
    shutil.rmtree(root / "pointers")
    for stage in (root / "cas").iterdir():
        if stage.name != "curate_map":
            shutil.rmtree(stage)


def write_parts(write_jsonl: Run, records: list[Record], folder: str, count: int, seed: int) -> Path:
    shuffled = random.Random(seed).sample(records, len(records))
    paths = [write_jsonl(f"{folder}/part-{i}.jsonl", shuffled[i::count]) for i in range(count)]
    return Path(paths[0]).parent


@pytest.mark.parametrize(("shards", "workers"), [(1, 2), (2, 1), (7, 3)])
def test_any_number_of_shards_and_workers_gives_the_same_content(
    curate: Run, lines: list[Record], write_jsonl: Run, shards: int, workers: int
) -> None:
    records = with_copies(lines)
    one = curate(write_jsonl("one/a.jsonl", records), "--shard-characters", "3000", store="one")
    folder = write_parts(write_jsonl, records, "many", shards, seed=shards)
    packed = folder / "part-0.jsonl"
    packed.with_suffix(".jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    forget_all_but_maps(curate(folder).root)
    arguments = ("--shard-characters", "3000", "--workers", str(workers), "--batch-bytes", "9000")
    forget_progress()  # of other tests in this process, which may have failed as they should
    many = curate(folder, *arguments)
    assert digests(many) == digests(one)
    assert len(list((many.root / "cas" / "curate_map").iterdir())) == shards, "a shard was mapped again"
    assert all(one.done == one.total for one in progress()), "what was found counts as done"
    assert len(many.output().paths("train-*.parquet")) > 2
    assert (many.root / "cas/curate").exists() and not list(many.root.glob("cas/*/*/*/scratch"))


def test_folders_above_the_store_are_no_columns(curate: Run, lines: list[Record], write_jsonl: Run) -> None:
    """As a data lake names them; what reads Parquet takes them for columns unless it is told not to."""
    text = write_jsonl("a.jsonl", with_copies(lines))
    arguments = ("--allow-licenses", "MIT,CC-BY-SA-4.0", "--split-by", "source")
    plain = curate(text, *arguments, store="plain")
    assert digests(curate(text, *arguments, store="genre=x/license=y/source=z/id=1")) == digests(plain)


@pytest.mark.long
def test_many_small_files_are_read_in_bundles_with_the_same_content(
    curate: Run, lines: list[Record], write_jsonl: Run
) -> None:
    records = with_copies(lines)
    one = curate(write_jsonl("one/a.jsonl", records), store="one")
    folder = write_parts(write_jsonl, records, "many", 150, seed=1)
    many = curate(folder, "--workers", "2")
    assert digests(many) == digests(one)
    assert without_paths(many) == {**without_paths(one), "files": {"utf-8": 150}}
    bundles = len(list((many.root / "cas" / "curate_map").iterdir()))
    assert bundles <= 10 and not (many.root / "sources").exists()
    write_jsonl("many/new.jsonl", [{**lines[0], "text": lines[0]["text"][::-1]}])
    again = curate(folder, "--evaluation-set", "latest")
    assert again.report()["files"] == {"utf-8": 151}
    assert len(list((many.root / "cas" / "curate_map").iterdir())) <= bundles + 2, (
        "only the new file's bundle"
    )


def test_nothing_similar_to_a_held_out_text_is_trained_on(
    curate: Run, lines: list[Record], write_jsonl: Run
) -> None:
    before = curate(write_jsonl("a.jsonl", lines))
    held = [r for s in ("test", "valid") for r in before.rows(s)]
    editions = [
        {"text": damaged(r["text"], i), "genre": r["genre"], "source": "new"} for i, r in enumerate(held)
    ]
    after = curate(write_jsonl("a.jsonl", [*lines, *editions]), "--overlap-characters", "0")
    assert after.output("evaluation_set").content_digest == before.output("evaluation_set").content_digest
    texts = [*(r["text"] for r in held), *(r["text"] for r in after.rows("train"))]
    sets = Sets.of(texts)
    first, second = np.indices((len(held), len(texts) - len(held))).reshape(2, -1)
    assert similarities(sets.take(first), sets.take(second + len(held))).max() < 0.5
    assert [r for r in after.rows("train") if r["source"] == "new"], "strongly damaged ones may stay"
    dropped = after.report()["dropped"]["evaluation_set"]
    assert sum(v["documents"] for v in dropped.values()) >= len(held)


@pytest.mark.parametrize("by", ["author", "source"])
def test_a_held_out_author_or_source_is_held_out_whole(
    curate: Run, lines: list[Record], write_jsonl: Run, by: str
) -> None:
    named = [{**r, by: f"某{i % 30}"} for i, r in enumerate(lines)]
    unknown = [{**r, by: "佚名", "text": damaged(r["text"], 4)} for r in lines[::9]]
    first = curate(write_jsonl("a.jsonl", [*named, *unknown]), "--split-by", by)
    held = {r[by] for s in ("test", "valid") for r in first.rows(s)} - {"佚名"}
    assert held and not held & {r[by] for r in first.rows("train")}
    late = {"text": "欲渡黄河冰塞川，将登太行雪满山。", "genre": "诗", by: sorted(held)[0]}
    second = curate(write_jsonl("a.jsonl", [*named, *unknown, late]), "--split-by", by)
    assert not held & {r[by] for r in second.rows("train")}
    free = curate(write_jsonl("a.jsonl", [*named, *unknown, late]))
    assert held & {r[by] for r in free.rows("train")}


def han(text: str) -> str:
    return "".join(c for c in text if is_han(ord(c)))


def _as_file(questions: list[Record], form: str) -> bytes:
    if form == "json":
        return json.dumps({"data": [{"rows": questions}]}, ensure_ascii=False, indent=1).encode()
    if form in ("jsonl", "txt", "md"):
        return "\n".join(json.dumps(q, ensure_ascii=False) for q in questions).encode()
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter="," if form == "csv" else "\t")
    writer.writerow(["Question", "A", "B"])
    writer.writerows(['甲，\n"' + q["question"], *q["answers"]] for q in questions)
    data = out.getvalue().encode("gb18030" if form == "csv" else "utf-8-sig")
    return gzip.compress(data) if form.endswith(".gz") else data


def test_train_shares_no_run_with_a_benchmark_in_any_format(curate: Run, tmp_path: Path) -> None:
    train = curate(FIXTURE).rows("train")
    forms = ("jsonl", "json", "txt", "md", "csv", "tsv.gz")
    victims = [r for r in train if len(han(r["text"])) > 40][: len(forms)]
    for form, victim in zip(forms, victims, strict=True):
        run = han(victim["text"])
        questions = [{"question": "下一句？" + run[5:25], "answers": ["甲", "乙"]}]
        if form == "jsonl":  # and one that shares 13 characters of 113
            quoting = run[5:18] + "甲乙丙丁戊己庚辛壬癸" * 10
            questions.append({"question": quoting, "answers": ["甲", "乙"]})
        (tmp_path / f"bench.{form}").write_bytes(_as_file(questions, form))
    files = ("--benchmarks", " ".join(str(tmp_path / f"bench.{form}") for form in forms))
    curated = curate(FIXTURE, *files)
    left, gone = {r["id"] for r in curated.rows("train")}, {v["id"] for v in victims}
    assert left == {r["id"] for r in train} - gone
    dropped = curated.report()["dropped"]["benchmark"]
    assert sum(v["documents"] for v in dropped.values()) == 6
    shared = {"texts": 7, "with_a_shared_run": 7, "with_a_fifth_shared": 6}
    assert curated.report()["benchmarks_in_train"] == shared
    curate(FIXTURE, *files, "--max-overlap-share", "0.01", expect=65)


def test_near_copies_of_a_document_are_taken_down_with_it(
    curate: Run, lines: list[Record], write_jsonl: Run, tmp_path: Path
) -> None:
    records = with_copies(lines)
    before = curate(write_jsonl("a.jsonl", records)).rows("train")
    victim = next(r for r in before if r["cluster_size"] > 1 and r["source"] != "near")
    ids = tmp_path / "ids.txt"
    ids.write_text(f"{victim['id']}  # asked for by mail\n")
    after = curate(write_jsonl("a.jsonl", records), "--exclude", str(ids))
    assert victim["cluster_id"] not in {r["cluster_id"] for r in after.rows("train")}
    assert len(after.rows("train")) == len(before) - 1


def test_licences_are_counted_in_both_manifests(curate: Run) -> None:
    curated = curate(FIXTURE)
    for output, splits in (
        (curated.output(), ("train",)),
        (curated.output("evaluation_set"), ("test", "valid")),
    ):
        licenses = [r["license"] for s in splits for r in curated.rows(s)]
        assert output.manifest.metadata["licenses"] == {n: licenses.count(n) for n in set(licenses)}


def test_a_damaged_table_is_refused_by_name(
    curate: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bench.csv").write_bytes("问,答\n".encode() * 100 + b"\xff\xfe\xfd" * 3)
    curate(FIXTURE, "--benchmarks", str(tmp_path / "bench.csv"), expect=65)
    assert "bench.csv:101: expected a row of a table: not UTF-8" in capsys.readouterr().err
    curate(tmp_path / "bench.csv", expect=65)
    assert "the first: bench.csv:101: not UTF-8: invalid start byte" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[", '{"question": "短"}'])
def test_a_benchmark_that_cannot_be_compared_is_refused(
    curate: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "bench.jsonl").write_text(text, encoding="utf-8")
    assert not curate(FIXTURE, "--benchmarks", str(tmp_path / "bench.jsonl"), expect=65).is_committed
    assert "bench.jsonl" in capsys.readouterr().err


def test_after_gc_a_night_reads_only_the_new_file(
    curate: Run, lines: list[dict[str, Any]], write_jsonl: Run
) -> None:
    folder = write_jsonl("raw/1.jsonl", lines[:60]).parent
    first = curate(folder)
    write_jsonl("raw/2.jsonl", lines[60:120])
    curate(folder, "--evaluation-set", "latest")
    mapped = first.root / "cas" / "curate_map"
    before = {path: path.stat().st_mtime_ns for path in mapped.rglob("*") if path.is_file()}
    signed = [path for path in before if path.name.startswith("signed-")]
    assert store_tool(["gc", "--store", str(first.root), "--older-than", "0", "--delete"]) == 0
    write_jsonl("raw/3.jsonl", lines[120:])
    grown = digests(curate(folder, "--evaluation-set", "latest"))
    after = {path: path.stat().st_mtime_ns for path in mapped.rglob("*") if path.is_file()}
    assert len(before) == 8 + len(signed) and before.items() <= after.items(), "two files were mapped again"
    assert len(signed) == 2
    assert digests(curate(folder, "--force", "--evaluation-set", "latest")) == grown
