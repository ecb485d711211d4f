from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.balance.augmentation.synonyms import CLASSICAL_WORDS, MODERN_WORDS, Synonyms
from yanmo.common.errors import DataError


@pytest.mark.parametrize("path", [CLASSICAL_WORDS, MODERN_WORDS], ids=lambda path: path.stem)
def test_the_shipped_tables_are_consistent(path: Path) -> None:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    groups = [words for words in lines if words and words[0] not in "!" and not words[0].startswith("#")]
    words = [word for group in groups for word in group]
    assert len(groups) > 120 and all(len(group) > 1 for group in groups)
    assert len(words) == len(set(words)), "a word stands in one group only"
    table = Synonyms.read(path)
    assert set(table.equivalents) == set(words)
    assert all(word in table.equivalents[other] for word in words for other in table.equivalents[word])


def test_a_line_of_a_whole_dictionary_is_refused_before_each_word_is_kept_with_all_others(
    tmp_path: Path,
) -> None:
    words = [chr(0x4E00 + n) for n in range(501)]
    (tmp_path / "x.txt").write_text("天 地\n" + " ".join(words), encoding="utf-8")
    with pytest.raises(DataError, match=r"x.txt:2: 501 words .*expected one group per line, of at most 500"):
        Synonyms.read(tmp_path / "x.txt")
    (tmp_path / "x.txt").write_text("天 地\n" + " ".join(words[1:]), encoding="utf-8")
    assert len(Synonyms.read(tmp_path / "x.txt").equivalents["丁"]) == 499


def test_names_and_doubled_words_are_left_alone() -> None:
    table = Synonyms({"江": ("川",), "寂": ("静",), "月": ("蟾",)}, frozenset({"长江", "江南", "明月"}))
    assert list(table.places("长江江南寂寂江月明月寂")) == [(6, "江"), (7, "月"), (10, "寂")]


def test_the_longest_word_wins() -> None:
    table = Synonyms({"渔": ("捕",), "渔父": ("渔翁",)}, frozenset())
    assert list(table.places("渔父渔")) == [(0, "渔父"), (2, "渔")]


def test_a_dictionary_of_the_users_is_read(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# mine\n舟 船\n! 龙舟\n单\n", encoding="utf-8")
    table = Synonyms.read(path)
    assert table.equivalents["舟"] == ("船",)
    assert "单" not in table.equivalents
    assert table.fixed == {"龙舟"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"# nothing\n", "no line holds two words"),
        ("舟 船".encode("gb18030"), "in UTF-8; found byte 0x"),
    ],
)
def test_what_is_no_dictionary_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        Synonyms.read(path)
    with pytest.raises(DataError, match="expected a text file"):
        Synonyms.read(tmp_path / "absent.txt")
