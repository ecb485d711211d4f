"""A command line that a log shows can be pasted into a shell, and gives nothing away."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.shell_words import shell_line

CHARACTERS = st.characters(exclude_characters="\0@", exclude_categories=["Cs"])
BYTES_OF_NO_TEXT = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
WORDS = st.lists(st.text(CHARACTERS | BYTES_OF_NO_TEXT, max_size=12), max_size=4)
"""What a process may be given (PEP 383)."""
PASSWORDS = st.text(max_size=8)


@settings(max_examples=60, deadline=None)
@given(WORDS)
def test_bash_reads_back_every_word_that_was_given(words: list[str]) -> None:
    line = shell_line(["printf", "%s\\0", "first", *words])
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert said.split(b"\0")[1:-1] == [word.encode("utf-8", "surrogateescape") for word in words]


@pytest.mark.parametrize("word", ["\ud800", "a\udfff", "\udc7f"])
def test_half_a_character_of_a_json_file_is_shown_too(word: str) -> None:
    line = shell_line(["printf", "%s", word])
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert said == word.encode("utf-8", "surrogatepass")


@settings(max_examples=300, deadline=None)
@given(
    PASSWORDS,
    PASSWORDS,
    st.sampled_from(["http://", "https://", "HTTP://", "s3://", ""]),
    st.sampled_from(["--endpoint=", "--sources=", "", "--endpoint"]),
)
def test_no_word_shows_a_password_whatever_characters_it_has(
    before: str, after: str, scheme: str, option: str
) -> None:
    if not scheme and not option.startswith("--endpoint"):
        return  # nothing says that it is an address
    address = f"{scheme}AKIA:{before}wJalr{after}K7MDENG@minio:9000"
    words = [f"{option}{address}"] if option.endswith("=") or not option else [option, address]
    line = shell_line(["yanmo", "curate", *words])
    assert "wJalr" not in line and "MDENG" not in line and "***" in line


@pytest.mark.parametrize("word", ["s3://bucket/poem@tang", "--why=a@b", "--sources=file:///x@y;genre=诗"])
def test_what_is_no_login_stays(word: str) -> None:
    assert shlex.split(shell_line([word])) == [word]
