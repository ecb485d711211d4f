"""Options of all stages in one line: whatever the values hold, they are read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yanmo.options.one_line import STAGES, as_line, read_line
from yanmo_pipelines.stages import ON_NODES

NAMES = st.from_regex(r"[a-z]{1,8}\.[a-z][a-z_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_line_is_read_back_as_it_was_written(settings: dict[str, str]) -> None:
    wanted: dict[str, dict[str, str]] = {}
    for name, value in settings.items():
        stage, _, option = name.partition(".")
        wanted.setdefault(stage, {})[option] = value
    assert read_line(as_line(settings)) == wanted


def test_it_is_written_as_people_write_it() -> None:
    assert as_line({"train.layers": "4", "balance.quotas": "ci=200%,fu=200%"}) == (
        "train.layers=4 balance.quotas=ci=200%,fu=200%"
    )
    assert read_line("train.layers=4   curate.default_genre='白话 文' a.b=c=d,e") == {
        "train": {"layers": "4"},
        "curate": {"default_genre": "白话 文"},
        "a": {"b": "c=d,e"},
    }


def test_the_stages_that_a_line_may_name_are_those_of_the_pipelines() -> None:
    assert sorted(stage.name for stage in ON_NODES) == sorted(STAGES)
