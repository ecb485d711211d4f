"""Each form of a log line says the same, is one line, and is read by those who read logs."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common import logs
from yanmo.common.logs import (
    FORMS,
    JSON,
    PLAIN,
    formatter,
    last_line,
    last_words_in,
    read_line,
    setup,
)

ANY = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60)
WORDS = ANY.filter(lambda text: text.strip() == text and text and text.isprintable())


def written(form: str, message: str, rank: int | None = None, **more: object) -> str:
    record = logging.LogRecord("yanmo.x", logging.WARNING, "f.py", 1, "%s", (message,), None)
    vars(record).update(more)
    return formatter(form, "train", rank).format(record)


@given(WORDS, st.sampled_from(FORMS), st.sampled_from([None, 0]))
def test_what_is_written_is_read_in_each_form(message: str, form: str, rank: int | None) -> None:
    line = read_line(written(form, message, rank))
    assert line is not None and line.stage == "train"
    # what would steer a terminal is spelled out in all of them
    assert line.message == message or logs.visible(message) == logs.visible(line.message)
    if form != PLAIN:
        assert line.level == "warning" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.time)
        assert ("rank" in line.values) == (rank is not None)


@given(ANY)
def test_a_line_of_values_is_one_line_and_holds_what_was_said(message: str) -> None:
    try:
        raise ValueError(message)
    except ValueError:
        exc_info = sys.exc_info()
    text = written(JSON, message, figures={"loss": 1.5, "stage": "not this"}, exc_info=exc_info)
    assert len(text.splitlines()) == 1
    line = read_line(text)
    assert line is not None and (line.stage, line.message) == ("train", message)
    assert float(line.values["loss"]) == 1.5 and "Traceback" in line.values["exception"]


def test_the_forms_show_the_same_moment_and_figures() -> None:
    at = {"created": 1763854892.5129, "figures": {"step": 120, "loss": 4.25, "grad_norm": None}}
    message = "step 120 of 450: loss 4.25"
    assert json.loads(written(JSON, message, 1, **at)) == {
        "time": "2025-11-22T23:41:32.512Z",
        **{"level": "warning", "stage": "train", "rank": 1, "step": 120, "loss": 4.25, "message": message},
    }


def test_plain_lines_are_as_they_were_and_name_only_the_other_ranks() -> None:
    assert re.fullmatch(r"\d\d:\d\d:\d\d train    a word", written(PLAIN, "a word"))
    assert re.fullmatch(r"\d\d:\d\d:\d\d train    a word", written(PLAIN, "a word", 0))
    assert re.fullmatch(r"\d\d:\d\d:\d\d train    rank 3: a word", written(PLAIN, "a word", 3))


@pytest.mark.parametrize("form", FORMS)
def test_no_form_shows_a_password_or_steers_a_terminal(form: str) -> None:
    said = "cannot read http://user:secret@host/x\nnext \u202eline, user@host"
    text = written(form, said)
    assert "secret" not in text and "\u202e" not in text and "user@host" in text


@pytest.mark.parametrize(
    "text",
    [
        *("", "Traceback (most recent call last):", '{"time": 1}', '{"a', "[1]"),
        *("{}", '{"a":' * 100_000),
    ],
    ids=lambda text: text[:20],
)
def test_lines_of_others_are_none_of_ours(text: str) -> None:
    assert read_line(text) is None


@given(ANY)
def test_no_text_confuses_the_reader(text: str) -> None:
    for begin in ("", "{", '{"time": "', "12:00:00 "):
        line = read_line(begin + text)
        assert line is None or isinstance(line.message, str)


@pytest.mark.parametrize("form", FORMS)
def test_the_last_words_of_a_stage_are_found_in_each_form(form: str) -> None:
    cause = (
        "line 3 of raw.txt: not a poem; take it out, or give --max-bad 0.1, and more that is cut in the last"
    )
    said = ["reading", cause, "to run it again: yanmo toy", last_line("toy", 65, cause)]
    lines = [read_line(written(form, one)) for one in said]
    ended = last_words_in([line.message for line in lines if line])
    assert (ended.code, ended.cause) == (65, cause) and ended.before == said[:3]


def test_a_long_path_leaves_room_for_what_is_wrong_with_it() -> None:
    cause = "/mnt/shared/corpora/2026/library/of/books/part-00017.jsonl.zst: truncated; copy it again"
    line = last_line("curate", 65, cause)
    assert line == "curate error 65: ...-00017.jsonl.zst: truncated; copy it again"
    said = ["reading", cause, "to run it again: yanmo curate", line]
    assert last_words_in(said).cause == cause


def one_line(text: str) -> str:
    return " ".join(text.split())


CAUSES = st.lists(
    st.one_of(st.text(max_size=12), st.just("s3://bucket/of/a/name/champion.json:")), min_size=1, max_size=30
).map(lambda words: one_line(" ".join(words)))


@given(CAUSES.filter(bool), st.sampled_from(["", "an earlier try of run x ended for good (DataError): "]))
def test_the_cause_is_found_whole_however_the_last_line_shortens_it(cause: str, begin: str) -> None:
    said = ["reading", begin + cause, "to run it again: yanmo toy", last_line("toy", 78, cause)]
    assert len(said[-1]) <= 62
    assert last_words_in(said).cause == cause


def test_the_environment_gives_the_form_where_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.VARIABLE, "json")
    stream = io.StringIO()
    setup("info", "test")
    logging.getLogger().handlers[-1].setStream(stream)  # type: ignore[attr-defined]
    logging.getLogger("yanmo.x").info("one")
    assert json.loads(stream.getvalue())["message"] == "one"
    monkeypatch.setenv(logs.VARIABLE, "nonsense")
    assert isinstance(formatter("", "x"), logs.PlainLines)
