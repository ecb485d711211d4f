"""The stage as a whole: what it commits, what it refuses, and that nothing depends on order or machine."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import needs_affinity, one_cpu

from yanmo.curate.config import STAGE
from yanmo.curate.text.common_characters import COMMON
from yanmo.curate.text.normalize import is_han
from yanmo.formats.records import DOCUMENTS, check_schema, document_id
from yanmo.store.pointers import read_pointer

COMPONENTS = Path(__file__).parents[3] / "components"
FIXTURE = Path(__file__).parents[2] / "data" / "documents.jsonl"
Run = Callable[..., Any]
Record = dict[str, Any]

GOLDEN = (11, "6b54b8d3b87f912b", "b4f33c241d17b3da")


def han(text: str) -> str:
    return "".join(c for c in text if is_han(ord(c)))


def test_output_is_the_same_as_ever(curate: Run) -> None:
    curated = curate(FIXTURE)
    found = (
        STAGE.revision,
        curated.output().content_digest[:16],
        curated.output("evaluation_set").content_digest[:16],
    )
    assert found == GOLDEN, (
        "curate writes other bytes for the same text. If that was not meant, mend it; if it was, raise "
        "STAGE.revision in yanmo/curate/config.py (mapping.REVISION and EVALUATION_SET_REVISION too, where "
        "their files changed) and pin the new digests here. A new pyarrow may change bytes as well."
    )


def test_documents_are_complete_and_sorted(curate: Run, lines: list[Record]) -> None:
    curated = curate(FIXTURE)
    for split in ("train", "valid", "test"):
        rows = curated.rows(split)
        assert [r["id"] for r in rows] == sorted(r["id"] for r in rows)
        for row in rows:
            assert row["id"] == document_id(row["source"], row["title"], row["text"])
            assert row["split"] == split and row["cluster_size"] == 1 and len(row["cluster_id"]) == 32
            assert row["parent_id"] is None and row["rule"] is None and row["loss_spans"] is None
            assert dict(row["labels"]).keys() <= {"dynasty"}
            assert row["license"] == ("CC-BY-SA-4.0" if row["source"].startswith("kanripo/") else "MIT")
    for path in curated.output().paths("*-of-*.parquet"):
        check_schema(path, "documents")
        assert pq.read_schema(path).names == DOCUMENTS.names
    splits = [{r["id"] for r in curated.rows(s)} for s in ("train", "valid", "test")]
    assert len(set.union(*splits)) == sum(map(len, splits))
    assert {r["genre"] for r in curated.rows("train")} == {r["genre"] for r in lines}


def test_every_document_read_is_kept_or_counted_by_reason(curate: Run, lines: list[Record]) -> None:
    curated = curate(FIXTURE)
    report = curated.report()
    for genre in ("诗", "词", "文", "赋"):
        read = sum(line["genre"] == genre for line in lines)
        dropped = {r: v.get(genre, {}).get("documents", 0) for r, v in report["dropped"].items()}
        kept = sum(row["genre"] == genre for row in curated.rows("train"))
        assert report["read"][genre]["documents"] == read == kept + sum(dropped.values())
    assert {"stub", "too_short", "lacuna", "private_use"} <= report["dropped"].keys()
    assert report["cleaned"]["markup"]["文"]["documents"] >= 3
    assert all(len(examples) <= 10 for examples in report["examples"].values())
    assert curated.output().manifest.metadata["text_form"] == "classical-1"
    assert sum(curated.output().manifest.metadata["licenses"].values()) == len(curated.rows("train"))


@needs_affinity
def test_the_workers_are_as_many_as_cpus_may_be_used_and_the_bytes_are_the_same(
    curate: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    two = curate(FIXTURE, "--workers", "2", "--batch-bytes", "5000", store="two").output()
    capsys.readouterr()
    with one_cpu():
        found = curate(FIXTURE, "--batch-bytes", "5000").output()
    assert found.manifest.execution["workers"] == 1
    assert "1 at work at a time at most: 1 CPU may be used here" in capsys.readouterr().err
    assert (found.manifest.key, found.content_digest) == (two.manifest.key, two.content_digest)


def test_a_second_run_reads_no_source_and_has_the_same_key(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl("a.jsonl", lines)
    first = curate(path).output()
    path.chmod(0)
    stat = path.stat()
    path.write_bytes(b"x" * stat.st_size) if os.geteuid() == 0 else None
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert curate(path).output().manifest.key == first.manifest.key
    assert "is committed already" in capsys.readouterr().err


def test_the_evaluation_set_stays_when_text_is_added(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl("a.jsonl", lines[:120])
    before = curate(path)
    pinned, test = before.output("evaluation_set"), before.rows("test")
    first, train = before.output(), before.rows("train")
    quotation = (
        "序曰：" + han(max(test, key=lambda r: len(r["text"]))["text"])[3:30] + "。余读而悲之，因为之序。"
    )
    leak = {"text": quotation, "genre": "文", "source": "new"}
    copy = {**leak, "text": test[0]["text"] + "。"}
    after = curate(write_jsonl("a.jsonl", [*lines, leak, copy]))
    assert after.output("evaluation_set").content_digest == pinned.content_digest
    assert after.output().manifest.key != first.manifest.key
    assert after.rows("test") == test
    assert not [r for r in after.rows("train") if r["source"] == "new"]
    dropped = after.report()["dropped"]
    assert dropped["overlap"]["文"]["documents"] >= 1
    assert len(after.rows("train")) > len(train)


def test_no_training_document_shares_a_run_of_13_characters_with_the_evaluation_set(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    parts = [{**r, "text": han(r["text"])[: len(r["text"]) // 3 + 8]} for r in lines]
    curated = curate(write_jsonl("a.jsonl", [*lines, *parts]), "--max-overlap-share", "1")
    held = [han(r["text"]) for s in ("valid", "test") for r in curated.rows(s)]
    runs = {text[i : i + 13] for text in held for i in range(len(text) - 12)}
    train = [han(r["text"]) for r in curated.rows("train")]
    assert not [t for t in train if any(t[i : i + 13] in runs for i in range(len(t) - 12))]
    assert curated.report()["dropped"]["overlap"]
    free = curate(FIXTURE.parent.parent / "data", "--overlap-characters", "0", store="free")
    assert "overlap" not in free.report()["dropped"]


def test_in_modern_text_boilerplate_is_no_leak_and_what_is_left_gives_no_held_out_text_away(
    curate: Run, write_jsonl: Callable[..., Path]
) -> None:
    """A line that every document ends with; before, one run of 13 characters dropped each of them."""
    every = "订阅这个周刊请在每周五早上打开网页然后留下你的邮箱。"
    draw = random.Random(1)
    bodies = ["".join(draw.choices(sorted(COMMON), k=900)) for _ in range(80)]
    texts = [{"text": f"第{n}期\n{body}\n{every}", "genre": "文"} for n, body in enumerate(bodies)]
    arguments = ("--text-form", "modern-1", "--filter-sets", "文=none", "--near-duplicate-similarity", "0")
    first = curate(write_jsonl("a.jsonl", texts), *arguments)
    assert not first.report()["dropped"].get("overlap")
    test = first.rows("test")
    quoting = [
        {"text": f"引文{n}：" + r["text"][10:250] + bodies[n], "genre": "文"} for n, r in enumerate(test)
    ]
    after = curate(write_jsonl("a.jsonl", [*texts, *quoting]), *arguments, "--max-overlap-share", "1")
    left = [han(r["text"]) for r in after.rows("train")]
    assert not [text for text in left if "引文" in text]
    known = {text[i : i + 13] for text in left for i in range(len(text) - 12)}
    for held in (han(r["text"]) for r in test):
        inside = {i + j for i in range(len(held) - 12) if held[i : i + 13] in known for j in range(13)}
        assert len(inside) <= 0.2 * len(held)


@pytest.mark.long
def test_modern_pages_that_differ_in_names_and_code_are_no_copies(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    page = "".join(
        f"## 选项{n}\n\n用 `tiup {{0}} start --node n{n}` 启动节点，再看日志 {{0}}-{n}.log。\n"
        for n in range(30)
    )
    pages = [
        page.format("dm"),
        page.format("cluster"),
        page.format("dm").replace("，", ", "),
        page.format("dm"),
    ]
    records = [*lines, *({"text": text, "title": f"{n}", "genre": "文"} for n, text in enumerate(pages))]
    for form, copies, near in (("modern-1", 1, 1), ("classical-1", 3, 0)):
        arguments = ("--text-form", form, "--min-han-share", "0", "--max-overlap-share", "1")
        dropped = curate(write_jsonl("a.jsonl", records), *arguments, store=form).report()["dropped"]
        before = curate(write_jsonl("b.jsonl", lines), *arguments, store=f"{form}, lines").report()["dropped"]
        found = [
            sum(g["documents"] for g in of.get(reason, {}).values())
            for of in (dropped, before)
            for reason in ("duplicate", "near_duplicate")
        ]
        assert (found[0] - found[2], found[1] - found[3]) == (copies, near)


def test_code_that_train_quotes_is_measured_and_no_more_goes_than_has_to(
    curate: Run, write_jsonl: Callable[..., Path]
) -> None:
    draw = random.Random(1)
    bodies = ["".join(draw.choices(sorted(COMMON), k=400)) for _ in range(60)]
    code = [[f"def f{n}_{i}(x): return x + {draw.random()}" for i in range(60)] for n in range(60)]
    texts = [{"text": "\n".join((b, *c)), "genre": "文"} for b, c in zip(bodies, code, strict=True)]
    arguments = ("--text-form", "modern-1", "--filter-sets", "文=none", "--near-duplicate-similarity", "0")
    (held, *_) = [r["text"] for r in curate(write_jsonl("a.jsonl", texts), *arguments).rows("test")]
    lines, long = held.split("\n")[1:], ["".join(draw.choices(sorted(COMMON), k=5000)) for _ in range(10)]
    quoting = [
        {"text": "\n".join((f"引文{n}", body, *lines[6 * n : 6 * n + 6])), "genre": "文"}
        for n, body in enumerate(long)
    ]
    after = curate(write_jsonl("a.jsonl", [*texts, *quoting]), *arguments, "--max-overlap-share", "1")
    train = [r["text"] for r in after.rows("train")]
    assert sum("引文" in text for text in train) in (2, 3), "each quotes a tenth of the code"

    def units(text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+|[\u4e00-\u9fff]", text)

    known = {tuple(own[i : i + 13]) for own in map(units, train) for i in range(len(own) - 12)}
    own = units(held)
    inside = {i + j for i in range(len(own) - 12) if tuple(own[i : i + 13]) in known for j in range(13)}
    assert 0.1 * len(own) < len(inside) <= 0.2 * len(own) and after.report()["common_runs"] == 0


def test_none_chooses_a_new_evaluation_set(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl("a.jsonl", lines[:90])
    first = curate(path).output("evaluation_set")
    second = curate(write_jsonl("a.jsonl", lines), "--evaluation-set", "none").output("evaluation_set")
    assert second.content_digest != first.content_digest


def test_pinned_set_is_told_apart_from_split_options(curate: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = curate(FIXTURE).output("evaluation_set")
    second = curate(FIXTURE, "--test-share", "0.2").output("evaluation_set")
    assert second.content_digest == first.content_digest
    assert "--test-share has no effect" in capsys.readouterr().err


def test_a_pinned_document_cannot_be_taken_down_silently(
    curate: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = curate(FIXTURE).rows("test")
    ids = tmp_path / "ids.txt"
    ids.write_text(test[0]["id"])
    curate(FIXTURE, "--exclude", str(ids), expect=65)
    assert "choose a new one with --evaluation-set none" in capsys.readouterr().err
    curated = curate(FIXTURE, "--exclude", str(ids), "--evaluation-set", "none")
    assert test[0]["id"] not in {r["id"] for r in curated.rows("test")}


@pytest.mark.parametrize("what", ["a copy of it", "the document, which is no longer in the sources"])
def test_nor_by_what_stands_for_it(
    curate: Run,
    lines: list[Record],
    write_jsonl: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    what: str,
) -> None:
    test = curate(FIXTURE).rows("test")[0]
    (its,) = (line for line in lines if line["title"] == test["title"])
    others, ids = [line for line in lines if line is not its], tmp_path / "ids.txt"
    if what == "a copy of it":
        copy = {**its, "text": its["text"].replace("。", "！")}
        whole = curate(write_jsonl("copy.jsonl", [copy, *others]), store="other")
        (id,) = (
            row["id"]
            for split in ("train", "valid", "test")
            for row in whole.rows(split)
            if row["title"] == test["title"]
        )
        assert id != test["id"]
        source = write_jsonl("both.jsonl", [*lines, copy])
    else:
        id, source = test["id"], write_jsonl("others.jsonl", others)
    ids.write_text(id)
    curate(source, "--exclude", str(ids), expect=65)
    shown = "as copies" if what == "a copy of it" else id
    assert f"holds 1 of the documents to take down ({shown})" in capsys.readouterr().err


BAD: list[tuple[str, Callable[[list[Record]], list[Any]], tuple[str, ...], str]] = [
    ("malformed", lambda r: [*r, "{a", "{a"], (), r"2 of 186 lines are malformed.*a\.jsonl:185: not JSON"),
    (
        "one line with the text of many",
        lambda r: [*r, "\r".join(json.dumps(x, ensure_ascii=False) for x in r)],
        (),
        r"kB of .* kB cannot be read, more than the allowed share 0\.01; .*a\.jsonl:185: not JSON",
    ),
    (
        "one line that is too long",
        lambda r: [*r, "x" * 9_000_000],
        ("--max-characters", "20000"),
        r"9\.0 MB of .* cannot be read.*a\.jsonl:185: longer than",
    ),
    (
        "no genre",
        lambda r: [r[0], *({**x, "genre": ""} for x in r[1:])],
        (),
        r"a\.jsonl:2: no field 'genre' and no --default-genre; give it after the place .*;genre=shi.*"
        r"curate\.default_genre=shi",
    ),
    (
        "filter",
        lambda r: [*r, *({**x, "text": "短"} for x in r[:60])],
        (),
        "too_short takes 6.*: a.jsonl:.*, --min-han-characters; to allow so many, --max-filter-share 0",
    ),
    ("nothing", lambda r: [{**r[0], "text": "短"}] * 3, ("--max-filter-share", "1"), "no document passed"),
    ("blank", lambda r: ["", " "], (), "--sources: the files hold no documents"),
    ("small", lambda r: r[:3], (), "split: of 3 documents that filters and copies leave, there are 3 groups"),
    (
        "one source",
        lambda r: [{**x, "genre": "诗", "source": "one"} for x in r],
        ("--split-by", "source"),
        r"there is 1 group, as --split-by source keeps all texts of one source together, and 5 .*: "
        "give text of more sources, or leave --split-by out",
    ),
    (
        "overlap",
        lambda r: [*r, *({**x, "text": x["text"][: len(x["text"]) // 3 + 9]} for x in r)],
        ("--max-overlap-share", "0"),
        "overlap takes .* more than the allowed share 0: a.jsonl:.*--overlap-share; .*--max-overlap-share 0",
    ),
]


@pytest.mark.parametrize(("name", "change", "arguments", "message"), BAD, ids=[b[0] for b in BAD])
def test_bad_input_is_refused_with_what_to_do_and_commits_nothing(
    curate: Run,
    lines: list[Record],
    write_jsonl: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    name: str,
    change: Callable[[list[Record]], list[Any]],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    curated = curate(write_jsonl("a.jsonl", change(lines)), *arguments, expect=65)
    assert not curated.is_committed and read_pointer(curated.store, "dev", "evaluation_set") is None
    errors = capsys.readouterr().err
    assert re.search(message, errors), errors


@pytest.mark.parametrize("damage", [b"", b"\\?"])
def test_an_array_that_breaks_off_ends_the_run_and_loses_nothing_silently(
    curate: Run,
    lines: list[Record],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: bytes,
) -> None:
    data = json.dumps(lines, ensure_ascii=False).encode()
    half = len(data) // 2
    (tmp_path / "a.json").write_bytes(data[:half] + damage + data[half:] * bool(damage))
    curate(tmp_path / "a.json", expect=65)
    errors = capsys.readouterr().err
    how = (
        "cannot be read, more than .*; mend them .*no JSON"
        if damage
        else r"a\.json: breaks off: no JSON .*; fetch it"
    )
    assert re.search(how, errors), errors


@pytest.mark.parametrize("first", ['{"meta": "v1"}', '{"text": null}', "?" * 70_000])
@pytest.mark.parametrize("batch_bytes", ["65536", "1000000"])
def test_what_is_no_document_says_nothing_of_a_file_s_genres(
    curate: Run,
    lines: list[Record],
    write_jsonl: Callable[..., Path],
    first: str,
    batch_bytes: str,
) -> None:
    plain = [{"text": line["text"]} for line in lines]
    path = write_jsonl("a.jsonl", [first, *plain])
    allow = ("--batch-bytes", batch_bytes, "--max-malformed-share", "0.9", "--max-filter-share", "1")
    report = curate(path, *allow, "--overlap-characters", "0").report()
    assert (report["lines"], report["malformed"]) == (185, 1)


def test_few_malformed_lines_are_skipped_and_named(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    curated = curate(write_jsonl("a.jsonl", [*lines[:100], '{"text', *lines[100:]]))
    report = curated.report()
    assert (report["lines"], report["malformed"]) == (185, 1)
    assert report["first_malformed"][0].startswith("a.jsonl:101: not JSON")
    assert "skipped 1 malformed line of 185: a.jsonl:101" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sources", " "], "--sources is empty"),
        (["--test-share", "0.4", "--valid-share", "0.2"], "more than half"),
        (["--overlap-characters", "2"], "every text shares runs that short"),
        (["--benchmarks", "x.jsonl", "--overlap-characters", "0"], "--benchmarks needs --overlap-characters"),
    ],
)
def test_contradicting_options_are_refused(
    curate: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    curate(FIXTURE, *arguments, expect=64)
    assert message in capsys.readouterr().err


@pytest.mark.fault(few=1)
@pytest.mark.parametrize("seconds", [0.6, 1.2, 1.8])
def test_a_killed_run_is_healed_by_the_next_one(curate: Run, tmp_path: Path, seconds: float) -> None:
    arguments = ["--sources", str(FIXTURE), "--store", str(tmp_path / "store"), "--batch-bytes", "2000"]
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    process = subprocess.Popen(
        [sys.executable, "-m", "yanmo.curate", *arguments], env=environment, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    healed = curate(FIXTURE).output()
    assert healed.content_digest == curate(FIXTURE, store="clean").output().content_digest


def _flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("which", ["curate", "curate_map"])
def test_force_mends_files_that_changed_on_disk(
    curate: Run, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    curated = curate(FIXTURE)
    digest = curated.output().content_digest
    (path,) = (curated.root / "cas" / which).glob("*/*/[tm][ra]*-00000*.parquet")
    _flip_a_byte(path)
    if which == "curate_map":  # another option of `plan` reads the damaged file, and says what to do
        curate(FIXTURE, "--overlap-characters", "20", expect=65)
        assert re.search(r"mapped-000000\.parquet: changed since.*--force", capsys.readouterr().err)
    mended = curate(FIXTURE, "--force").output()
    assert mended.content_digest == digest
    mended.paths("*")
    curate(FIXTURE, "--overlap-characters", "20")


def poems(genres: int, each: int) -> list[Record]:
    """So many texts of each genre, of which no two are alike."""
    drawn = random.Random(0)
    common = Counter(han(FIXTURE.read_text(encoding="utf-8"))).most_common(600)
    lines = ("".join(drawn.sample([c for c, _ in common], 40)) for _ in range(genres * each))
    return [{"text": text, "genre": f"g{i % genres:04d}", "source": "x"} for i, text in enumerate(lines)]


def test_genres_too_small_to_hold_anything_out_are_said_and_not_an_option_that_cannot_help(
    curate: Run, write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    curate(write_jsonl("many.jsonl", poems(200, 3)), expect=65)
    said = capsys.readouterr().err
    assert "the largest of 200 genres has 3 groups" in said and "5 are needed" in said
    assert "--genre-field" in said and "--min-split-documents" not in said
    raised = ["--min-split-documents", "100", "--test-share", "0.3", "--valid-share", "0.15"]
    curate(write_jsonl("many.jsonl", poems(200, 3)), *raised, store="raised", expect=65)


def test_the_log_does_not_grow_with_the_genres(
    curate: Run, write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {}
    for genres in (40, 160):
        capsys.readouterr()
        curate(write_jsonl(f"{genres}.jsonl", poems(genres, 12)), store=f"store {genres}")
        counted[genres] = len(capsys.readouterr().err.splitlines())
    assert counted[40] == counted[160] < 80, counted
