"""Numbers of things, and lists of names, in words."""

from __future__ import annotations

import pytest

from yanmo.common.words import plural, some_of


@pytest.mark.parametrize(
    ("number", "one", "many", "said"),
    [
        (1, "file", "", "1 file"),
        (0, "file", "", "0 files"),
        (2, "validation", "", "2 validations"),
        (1, "process", "processes", "1 process"),
        (3, "process", "processes", "3 processes"),
    ],
)
def test_a_number_of_things_is_right_about_one_too(number: int, one: str, many: str, said: str) -> None:
    assert plural(number, one, many) == said


def test_names_are_few_in_a_line_however_many_there_are() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([f"g{i}" for i in range(10_000)], 3) == "g0, g1, g2 and 9,997 more"
