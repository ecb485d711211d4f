"""Which text form texts get where nobody names one: by their words of grammar, later the channel's."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from yanmo.curate.likely_form import CLASSICAL, MODERN, form_of

Record = dict[str, Any]
Run = Callable[..., Any]
CORPUS = Path(__file__).parents[3] / "corpus"
CHAT = [
    {"role": "user", "content": "请写一首关于月亮的诗，要有这样的意思"},
    {"role": "assistant", "content": "床前"},
]


def read_bundle(name: str) -> Iterator[Record]:
    with (CORPUS / name).open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            yield json.loads(line)


@pytest.fixture(scope="module")
def by_source() -> dict[str, Counter[str]]:
    """Genre, or book, or this project's documents -> characters of all bundled texts of it."""
    found: dict[str, Counter[str]] = {}
    for name in ("small.jsonl.zst", "modern.jsonl.zst"):
        for record in read_bundle(name):
            key = record["source"].split("/")[2] if record["genre"] == "说" else record["genre"]
            found.setdefault(key, Counter()).update(record["text"])
    return found


def test_all_bundled_texts_are_told_apart_with_room_to_spare(by_source: dict[str, Counter[str]]) -> None:
    forms = {name: form_of(found) for name, found in by_source.items()}
    assert {name for name, found in forms.items() if found[0] == CLASSICAL} == {"诗", "词", "文", "赋"}
    assert forms.keys() >= {"红楼梦", "儒林外史", "老残游记", "孽海花", "三侠五义", "文档"}
    for form, modern, classical in forms.values():
        assert classical > 1.2 * modern if form == CLASSICAL else modern > 1.2 * classical


def test_text_without_words_of_grammar_is_classical_unless_it_is_latin() -> None:
    assert form_of(Counter())[0] == form_of(Counter("床前明月光"))[0] == CLASSICAL
    assert form_of(Counter("print hello 光"))[0] == MODERN


def modern_records(count: int) -> list[Record]:
    records = []
    for record in read_bundle("modern.jsonl.zst"):
        if record["genre"] == "文档" and len(records) < count:
            records.append(record)
    return records


def options_of(curated: Any) -> dict[str, Any]:
    return dict(yaml.safe_load(curated.output().path("config.yaml").read_text(encoding="utf-8")))


def test_modern_text_gets_its_form_and_what_it_stands_for_without_an_option(
    curate: Run, write_jsonl: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl("docs.jsonl", modern_records(100))
    alone = curate(path)
    assert "text form modern-1: words of modern Chinese" in capsys.readouterr().err
    assert (options_of(alone)["text_form"], options_of(alone)["min_han_share"]) == (MODERN, 0.1)
    asked = curate(path, "--text-form", MODERN, store="asked")
    assert asked.output().manifest.key == alone.output().manifest.key
    assert alone.output().manifest.inputs["text_form"]["uri"] == "modern-1, revision 6"
    own = curate(path, "--min-han-share", "0.3", "--max-filter-share", "1", store="own")
    assert (options_of(own)["text_form"], options_of(own)["min_han_share"]) == (MODERN, 0.3)


def test_classical_text_has_the_key_that_it_had_with_the_form_named(
    curate: Run, write_jsonl: Run, lines: list[Record]
) -> None:
    path = write_jsonl("a.jsonl", lines)
    left, named = curate(path), curate(path, "--text-form", CLASSICAL, store="b")
    assert left.output().manifest.key == named.output().manifest.key
    assert "text_form" not in left.output().manifest.inputs


@pytest.mark.long
def test_the_pinned_set_decides_and_not_the_text_of_today(
    curate: Run, write_jsonl: Run, lines: list[Record]
) -> None:
    modern, classical = write_jsonl("m.jsonl", modern_records(80)), write_jsonl("c.jsonl", lines)
    curate(modern)
    assert options_of(curate(classical))["text_form"] == MODERN
    curate(classical, store="other")
    assert options_of(curate(modern, "--max-filter-share", "1", store="other"))["text_form"] == CLASSICAL


def test_a_pinned_set_with_other_steps_gives_the_form_that_they_were_added_to(
    curate: Run, write_jsonl: Run
) -> None:
    path = write_jsonl("m.jsonl", modern_records(80))
    assert curate(path, "--steps", "lacuna").output().manifest.metadata["text_form"] == "modern-1+lacuna"
    assert curate(path, "--steps", "lacuna").output().manifest.metadata["text_form"] == "modern-1+lacuna"


def test_a_step_that_only_one_form_has_keeps_that_form(curate: Run, write_jsonl: Run) -> None:
    path = write_jsonl("m.jsonl", modern_records(80))
    found = curate(path, "--steps", "no-variants", "--max-filter-share", "1")
    assert found.output().manifest.metadata["text_form"] == "classical-1-variants"


def test_of_chats_the_answers_decide(curate: Run, write_jsonl: Run, lines: list[Record]) -> None:
    path = write_jsonl("c.jsonl", [*lines, *({"messages": CHAT, "genre": "诗"} for _ in range(2000))])
    assert options_of(curate(path))["text_form"] == CLASSICAL
    question = {"role": "user", "content": "以之为题，其意者何也？"}
    answers = [{"role": "assistant", "content": record["text"]} for record in modern_records(80)]
    chats = [{"messages": [question, answer], "genre": "chat"} for answer in answers]
    assert options_of(curate(write_jsonl("m.jsonl", chats), store="modern"))["text_form"] == MODERN


def test_many_files_are_looked_at_evenly_and_empty_ones_are_refused_where_no_other_is(
    curate: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i, record in enumerate(modern_records(130)):
        (folder / f"{i:03}.txt").write_text(record["text"], encoding="gb18030", errors="ignore")
    assert options_of(curate(f"{folder};layout=file"))["text_form"] == MODERN
    (folder / "x.txt").touch()
    assert options_of(curate(f"{folder};layout=file", store="other"))["text_form"] == MODERN
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "x.txt").touch()
    curate(f"{empty};layout=file", store="another", expect=65)
