"""`--sources bundled`: the corpus that comes with Yanmo; test_sources.py has places and their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.curate.sources import entries as module
from yanmo.curate.sources.entries import Entry, read_entries

ROOT = Path(__file__).parents[4]


def test_bundled_is_the_checkouts_corpus() -> None:
    """tests/install/test_release.py has that of the wheel."""
    assert read_entries(" bundled ") == [Entry(str(ROOT / "corpus/small.jsonl.zst"))]
    assert read_entries("bundled.jsonl") == [Entry("bundled.jsonl")], "only the word alone"


def test_bundled_chats_lie_beside_the_corpus_and_may_be_one_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [Entry(str(ROOT / "corpus" / name)) for name in ("small.jsonl.zst", "chats.jsonl.zst")]
    assert read_entries("bundled,bundled-chats") == both
    assert [entry.place for entry in read_entries("bundled-chats;license=MIT mine/")] == [
        both[1].place,
        "mine/",
    ]
    monkeypatch.setattr(module, "_CORPUS", tmp_path)
    with pytest.raises(
        EnvironmentFault, match=r"--sources bundled-chats: .* no corpus at .*/chats\.jsonl\.zst"
    ):
        read_entries("bundled-chats")


@pytest.mark.parametrize(
    ("sources", "places"),
    [
        ("s3://b/唐 诗.jsonl", ["s3://b/唐 诗.jsonl"]),
        ("s3://b/a  b/c d.txt;genre=shi x.txt", ["s3://b/a  b/c d.txt", "x.txt"]),
        ("s3://b/a b,s3://b/c bundled.txt,y", ["s3://b/a b", "s3://b/c bundled.txt", "y"]),
        ("s3://b/a s3://b/c /data", ["s3://b/a", "s3://b/c", "/data"]),
        ("x.txt s3://b/a,b", ["x.txt", "s3://b/a", "b"]),
        ("file:///a b", ["file:///a b"]),
        ("a b", ["a", "b"]),
    ],
)
def test_keys_may_hold_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: str, places: list[str]
) -> None:
    """A word behind an address belongs to it, unless it is a place itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").touch()
    assert [entry.place for entry in read_entries(sources)] == places


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("a.jsonl;genere=shi", "unknown setting 'genere'"),
        ("a.jsonl;genre", "'genre' is no name=value"),
        ("a.jsonl;encoding=latin", "encoding=latin: expected auto, utf-8"),
    ],
)
def test_settings_that_say_nothing_are_refused(entry: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_entries(entry)
