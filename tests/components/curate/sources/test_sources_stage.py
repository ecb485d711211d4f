"""Sources of every kind through the whole stage, and the bad input that people bring."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opencc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.curate.options.source_options import LAYOUTS
from yanmo.curate.sources import unpacking

Run = Callable[..., Any]
Record = dict[str, Any]
VERSE = "床前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。"


def kept(curated: Any) -> list[Record]:
    return [row for split in ("train", "valid", "test") for row in curated.rows(split)]


@pytest.mark.parametrize("encoding", ["gb18030", "big5hkscs", "utf-16", "utf-16-be"])
def test_the_same_text_in_another_encoding_gives_the_same_documents(
    curate: Run, lines: list[Record], tmp_path: Path, encoding: str
) -> None:
    to_traditional = opencc.OpenCC("s2t")
    texts = [to_traditional.convert(r["text"]) for r in lines if r["genre"] == "诗"]
    texts = [t for t in texts if t == t.encode(encoding, "ignore").decode(encoding) and "\n\n" not in t]
    for name, codec in (("a", "utf-8"), ("b", encoding)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_bytes("\n\n".join(texts).encode(codec))
    one = curate(tmp_path / "a", "--default-genre", "shi", store="one")
    two = curate(tmp_path / "b", "--default-genre", "shi", store="two")
    assert two.output().content_digest == one.output().content_digest
    expected = {"big5hkscs": "big5", "utf-16": "utf-16-le"}.get(encoding, encoding)
    assert (one.report()["files"], two.report()["files"]) == ({"utf-8": 1}, {expected: 1})


def test_settings_of_a_source_win_over_fields_and_are_part_of_the_key(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_jsonl("a.jsonl", [{**r, "text": r["text"]} for r in lines])
    plain = curate(path, store="plain").output().manifest.key
    curated = curate(f"{path};genre=qu;label.dynasty=ming;license=CC0-1.0")
    assert curated.output().manifest.key != plain
    for row in kept(curated):
        assert (row["genre"], dict(row["labels"]), row["license"]) == ("曲", {"dynasty": "ming"}, "CC0-1.0")


def test_lines_glued_from_another_encoding_are_read_and_counted(
    curate: Run, lines: list[Record], tmp_path: Path
) -> None:
    glued = [json.dumps(r, ensure_ascii=False).encode() for r in lines]
    glued.insert(50, json.dumps({"text": VERSE, "genre": "shi"}, ensure_ascii=False).encode("big5"))
    glued.insert(80, b'{"text": "caf\xe9", "genre": "\xff"}')
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(glued))
    report = curate(tmp_path / "a.jsonl").report()
    assert report["cleaned"]["line_in_big5"]["诗"]["documents"] == 1
    assert report["malformed"] == 1 and report["first_malformed"][0].startswith(
        "a.jsonl:81: not JSON in UTF-8"
    )


def test_a_file_half_in_another_encoding_is_read_line_by_line(
    curate: Run, lines: list[Record], tmp_path: Path
) -> None:
    texts = [json.dumps(line, ensure_ascii=False) for line in lines if len(line["text"]) > 30]
    codes = ["gb18030" if i % 2 else "utf-8" for i in range(len(texts))]
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b"".join(t.encode(c) + b"\n" for t, c in zip(texts, codes, strict=True)))
    whole = tmp_path / "whole.jsonl"
    whole.write_text("".join(t + "\n" for t in texts), encoding="utf-8")
    mixed = curate(path, store="mixed")
    assert mixed.rows("train") == curate(whole, store="whole").rows("train")


def test_a_decompression_bomb_ends_the_run(
    curate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unpacking, "BOMB_BYTES", 1 << 22)
    (tmp_path / "a.txt.bz2").write_bytes(bz2.compress(b" " * (1 << 24)))
    curate(tmp_path / "a.txt.bz2", expect=65)
    assert "which may be a decompression bomb" in capsys.readouterr().err


def test_parquet_whose_text_is_not_utf_8_loses_only_those_rows(
    curate: Run, lines: list[Record], tmp_path: Path
) -> None:
    raw = pa.array([*(r["text"].encode() for r in lines), b"\xff\xfe"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    table = pa.table({"text": texts, "genre": [r["genre"] for r in lines] + ["诗"]})
    pq.write_table(table, tmp_path / "a.parquet")
    report = curate(tmp_path / "a.parquet").report()
    assert report["malformed"] == 1 and report["first_malformed"] == [
        "a.parquet:185: not UTF-8: invalid start byte"
    ]


def test_steps_make_another_text_form_that_is_named(
    curate: Run, lines: list[Record], write_jsonl: Any
) -> None:
    path = write_jsonl("a.jsonl", lines)
    curated = curate(path, "--steps", "no-simplified,lacuna")
    assert curated.output().manifest.metadata["text_form"] == "classical-1+lacuna-simplified"
    assert any("風" in r["text"] for r in kept(curated))
    modern = curate(path, "--text-form", "modern-1", store="modern")
    assert modern.output().manifest.metadata["text_form"] == "modern-1"


def test_personal_data_is_masked_unless_it_is_to_stay(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    letter = {
        "text": "余居长安，不见故人者三年矣。一日友人来书曰：可拨13800138000，或致书a@b.cn，必复之也。",
        "genre": "文",
        "source": "x",
    }
    path = write_jsonl("a.jsonl", [*lines, letter])
    curated = curate(path)
    (row,) = [r for r in kept(curated) if r["source"] == "x"]
    assert row["text"].endswith("可拨（电话），或致书（邮箱），必复之也。")
    assert curated.report()["cleaned"]["personal_phone"]["文"]["documents"] == 1
    assert "13800138000" not in json.dumps(curated.report(), ensure_ascii=False)
    (row,) = [r for r in kept(curate(path, "--mask-personal", "none", store="open")) if r["source"] == "x"]
    assert "13800138000" in row["text"]


def test_filters_are_chosen_by_genre_and_shown_with_thresholds_and_examples(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path]
) -> None:
    path = write_jsonl("a.jsonl", lines)
    curated = curate(path, "--filter-sets", "wen=classical,*=verse", "--max-filter-share", "1")
    report = curated.report()
    assert report["filters"]["sets"] == {"诗": "verse", "词": "verse", "文": "classical", "赋": "verse"}
    letters = report["filters"]["letters"]
    assert letters["at_least"] == {"classical": 0.826} and letters["dropped"] >= 1
    assert report["dropped"]["letters"].keys() == {"文"}
    assert all(e["value"] < 0.826 for e in report["examples"]["letters"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--steps", "variants"),
        ("--steps", "no-lacuna"),
        ("--mask-personal", "phone,name"),
        ("--filter-sets", "wen=prose"),
        ("--filter-limits", "lacuna=much"),
    ],
)
def test_options_that_say_nothing_are_refused_before_anything_is_read(
    curate: Run, arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    curate("nothing-there.jsonl", *arguments, expect=64)
    assert f"{arguments[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize("form", ["jsonl", "txt", "parquet"])
def test_text_without_any_genre_goes_through_as_one_genre(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], tmp_path: Path, form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    texts = [r["text"] for r in lines]
    path = tmp_path / f"my poems.{form}"
    if form == "jsonl":
        path = write_jsonl(path.name, [{"text": text} for text in texts])
    elif form == "txt":
        path.write_text("\n\n".join(texts), encoding="utf-8")
    else:
        pq.write_table(pa.table({"text": texts}), path)
    done = curate(path)
    assert {row["genre"] for split in ("train", "valid", "test") for row in done.rows(split)} == {"text"}
    assert f"{len(lines)} documents without a genre, of genre 'text' now" in capsys.readouterr().err


def parquet(rows: list[Record], **columns: pa.DataType) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(columns.items()))), sink)
    return bytes(sink.getvalue())


NOTHING = {
    "x.parquet": parquet([], text=pa.string()),
    "y.parquet": parquet([], other=pa.int64()),
    "x.jsonl": b"",
    "x.jsonl.gz": gzip.compress(b""),
    "y.jsonl.gz": gzip.compress(b" \n\n"),
    "x.txt": b"",
    "y.txt": b"\xef\xbb\xbf\n \n",
    "x.txt.bz2": bz2.compress(b""),
    "x.json": b"[]",
    "package.json": b'{"name": "docs", "files": ["a"]}',
    "x.csv": b"text,title\n",
    "x.md": b"---\ntitle: x\n---\n\n",
}


@pytest.mark.long
def test_parts_without_documents_change_nothing_beside_others(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_jsonl("a/a.jsonl", lines)
    alone = curate(path, store="alone")
    for name, data in NOTHING.items():
        (tmp_path / "a" / name).write_bytes(data)
    named = " ".join(f"{tmp_path}/a/{name}" for name in NOTHING)
    for store, sources in (("folder", tmp_path / "a"), ("named", f"{path} {named}")):
        done = curate(sources, store=store)
        assert done.rows("train") == alone.rows("train") and done.rows("test") == alone.rows("test")
        assert done.report()["malformed"] == 0


@pytest.mark.parametrize("name", NOTHING)
def test_a_part_without_documents_alone_is_refused(curate: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(NOTHING[name])
    curate(tmp_path / name, expect=65)


def test_a_folder_of_markdown_is_a_document_a_file(
    curate: Run, lines: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    for number, record in enumerate(lines):
        path = folder / f"{number % 3}" / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = f"---\ntitle: 第{number}篇\nauthor: 某{number}\ndate: 2024-01-02\ntags:\n  - x\n---\n\n"
        path.write_text(f"{before}# 其一\n\n{record['text']}\n\n## 其二\n\n尾声。\n", encoding="utf-8")
    (folder / "package.json").write_text('{"name": "docs"}')
    (folder / "logo.svg").write_text("<svg/>")
    done = curate(folder, "--max-filter-share", "1", "--near-duplicate-similarity", "0")
    said = capsys.readouterr().err
    assert f"{len(lines)} files of Markdown, each a document; one above --max-characters 1000000" in said
    assert "1 file of other kinds left out: .svg 1" in said and "1 file without a document" in said
    report = done.report()
    assert (report["lines"], report["malformed"], report["empty"]) == (
        len(lines),
        0,
        ["package.json (no field 'text', only name)"],
    )
    for row in kept(done):
        number = row["title"].removeprefix("第").removesuffix("篇")
        assert row["author"] == f"某{number}" and row["source"] == f"{int(number) % 3}/{number}.md"
        assert dict(row["labels"]) == {"date": "2024-01-02"} and "tags" not in row["text"]
        assert "其二" in row["text"]
    cut = curate(folder, "--max-characters", "60", "--max-filter-share", "1", store="cut", expect=0)
    assert cut.report()["lines"] > len(lines)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_the_same_records_in_another_format_are_the_same_documents(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], tmp_path: Path, form: str
) -> None:
    records = [{**r, "source": "x"} for r in lines]
    one = curate(write_jsonl("a.jsonl", records), store="one")
    path = tmp_path / f"a.{form}"
    if form == "json":
        path.write_text(json.dumps({"poems": records}, ensure_ascii=False, indent=2), encoding="utf-8")
    else:
        names = list(dict.fromkeys(name for r in records for name in r))
        with path.open("w", encoding="gb18030", newline="") as file:
            rows = csv.DictWriter(file, names)
            rows.writeheader()
            rows.writerows(records)
    for batch_bytes in ("5000", "9000000"):
        two = curate(path, "--batch-bytes", batch_bytes, store=batch_bytes)
        assert two.output().content_digest == one.output().content_digest


def test_the_layouts_of_chats_are_said_with_counts(
    curate: Run, lines: list[Record], write_jsonl: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [f"请背诵《{r['title']}》，作者{r['author']}。" for r in lines]
    pairs = [{"问": q, "答": r["text"]} for q, r in zip(asked, lines, strict=True)]
    known = [{"question": q, "answer": r["text"][::-1]} for q, r in zip(asked, lines, strict=True)]
    path = write_jsonl("a.jsonl", [*pairs, *known[:100]])
    done = curate(path, "--chat-fields", "问,答", "--filter-sets", "chat=none")
    assert f"read from: 问/答 {len(lines)}, question/answer 100" in capsys.readouterr().err
    assert done.report()["chats"] == {"question/answer": 100, "问/答": len(lines)}
    curate(path, store="other", expect=65)
    assert "no field 'text', only 问, 答: name the text's with --text-field" in capsys.readouterr().err
    curate(path, "--chat-fields", "问", store="other", expect=64)
    assert "--chat-fields 问: expected the names of two fields" in capsys.readouterr().err


@pytest.mark.parametrize(("layout", "documents"), [("block", 1), ("line", 200), ("file", 1)])
def test_how_text_is_cut_is_said_before_it_is_read(
    curate: Run, lines: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    layout: str, documents: int,
) -> None:  # fmt: skip
    """Two hundred lines without a blank one became one document without a word."""
    text = "\n".join(r["text"].replace("\n", "") for r in lines * 2)
    (tmp_path / "lines.txt").write_text("\n".join(text.split("\n")[:200]) + "\n", encoding="utf-8")
    curate(tmp_path / "lines.txt", "--text-layout", layout, expect=0 if layout == "line" else 65)
    stderr = capsys.readouterr().err
    cut = stderr.index(f"lines.txt begins with {documents} document(s) in 200 line(s)")
    assert cut < stderr.index("without a genre")
    others = " or ".join(f"`;layout={name}`" for name in LAYOUTS if name != layout)
    assert f"{others} after the place, or --text-layout, cuts them in another way" in stderr


def test_many_files_in_another_encoding_are_one_line_of_the_log(
    curate: Run, lines: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of 239 chapters in GB18030 was 239 lines."""
    for number, record in enumerate(lines[:120]):
        path = tmp_path / "texts" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        encoding = "utf-8" if number < 20 else "gb18030"
        path.write_text(f"{record['text']}\n春眠不觉晓，处处闻啼鸟。", encoding=encoding)
    curate(f"{tmp_path / 'texts'};layout=file", "--near-duplicate-similarity", "0")
    stderr = capsys.readouterr().err
    assert stderr.count("gb18030") == 1 and "100 of 120 file(s) are in gb18030" in stderr
