"""What people type after `make demo`, as it reaches the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def words_of(folder: Path, *variables: str, target: str = "demo") -> list[str]:
    """The words that `make demo` gives to `yanmo`, which here writes them down."""
    program = folder / "bin/yanmo"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:], sep='\\0')\n")
    program.chmod(0o755)
    make = ["make", "--no-print-directory", "-o", "install", target, f"VENV={folder}", *variables]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].split("\0")


@pytest.mark.parametrize(
    "place",
    [
        "my poems.jsonl",
        "a;genre=诗",
        "it's.txt",
        'a"b.txt',
        "a\\b.txt",
        "$HOME.txt",
        "a&b|c>d (1).txt",
        "a#b.txt",
    ],
)
def test_a_place_of_ones_own_text_arrives_as_it_was_typed(tmp_path: Path, place: str) -> None:
    words = words_of(tmp_path, f"SOURCES={place}".replace("$", "$$"))
    assert words == ["run", "--store", "runs/mine", "--channel", "mine", "--set", f"data_sources={place}"]


TWO = "train.threads=2"
"""Other numbers of threads give other digits than README's, so the demos do not follow the machine's CPUs."""


def test_the_demo_has_the_bundled_text_and_quotas_for_its_genres(tmp_path: Path) -> None:
    words = words_of(tmp_path, "STORE=some where")
    assert words[:5] == ["run", "--store", "some where", "--channel", "demo"]
    assert words[6::2] == ["data_sources=corpus/small.jsonl.zst", "data_quotas=ci=200%,fu=200%", TWO]


def test_the_modern_demo_keeps_pieces_of_a_chapter_together(tmp_path: Path) -> None:
    words = words_of(tmp_path, target="demo-modern")
    assert words[:5] == ["run", "--store", "runs/modern", "--channel", "modern"]
    assert words[6::2] == ["data_sources=corpus/modern.jsonl.zst", "curate.split_by=source", TWO]


def test_the_chat_demo_tunes_the_champion_of_the_demo_in_its_store(tmp_path: Path) -> None:
    words = words_of(tmp_path, "STORE=some where", target="demo-chat")
    assert words[:7] == ["run", "--pipeline", "chat", "--store", "some where", "--channel", "chat"]
    assert {"model_start=demo/champion", TWO} <= {*words[8::2]}
