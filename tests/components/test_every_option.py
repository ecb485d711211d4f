"""Any text for any option of any stage: a value within its bounds, or exit code 64 and what to do."""

from __future__ import annotations

import importlib
import logging

import pytest
from config_file import written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from selection import few

from yanmo.common import names
from yanmo.common.errors import DataError, ExitCode, UsageError, report
from yanmo.curate.sources.entries import read_entries
from yanmo.curate.text.record_rules import check_record_rules
from yanmo.options.command_line import load
from yanmo.options.fields import flag, values_of
from yanmo.options.help import groups_of
from yanmo.options.values import WrongValue
from yanmo.options.yaml_file import dump_yaml

STAGES = (*names.STAGES, "resolve")
BASE = {"curate": {"sources": "corpus.jsonl"}}
NASTY = (
    "", " ", "-1", "0", "1", "010", "08", "1e3", "1e300", "-1e300", "1e9999", "inf", "-inf",
    "nan", "9" * 5000, "-" + "9" * 5000, "0." + "0" * 5000 + "1", "1" + "0" * 39, "0x10", "0b1",
    "0o17", "1_000", "1__0", "１０", "٣", "1,5", "1:30", "21:00", "auto", "none", "null", "~",
    "true", "yes", "no", "None", "--", "-x", "--store", "=", "%", "%s", "{}", "[1]", "a: b",
    "\0", "a\0b", "\udcff", "\ud800", "\n", "a\nb", "\u2028", "诗", "👍", "../..", "/",
    "*=verse,*=x", "size^" + "9" * 400, "shi=" + "9" * 400, "shi=" + "9" * 39 + "%",
    "lacuna=nan", "lacuna=1e999", "distinct_2>=1e999", "25:00", "24:00", "21:00-08:00", "2/1",
    ",", " , ,\n", "{诗: 5", "0/0", "999999/999999", "a=b=c", "(((", "\\",
)  # fmt: skip
log = logging.getLogger(__name__)


def config_of(stage: str) -> type:
    return importlib.import_module(f"yanmo.{stage}.config").STAGE.config


def check(stage: str, name: str, text: str, by_file: bool) -> None:
    """What `load` makes of it, and curate's second look before any file is opened."""
    cls, base = config_of(stage), [f"{flag(n)}={v}" for n, v in BASE.get(stage, {}).items() if n != name]
    try:
        texts = ["--config", written(dump_yaml({name: text}))] if by_file else [f"{flag(name)}={text}"]
        options = load(cls, [*base, *texts], f"yanmo {stage}")
        if stage == "curate":
            check_record_rules(options)
            read_entries(options.sources)
    except UsageError as error:
        assert report(error, log) == ExitCode.USAGE
        message = str(error)
        assert message.isprintable() or name in ("sources", "preset"), message
        try:
            values_of(cls)[name].read(text)
        except WrongValue:  # it cannot be, whatever the others are
            is_inline = by_file and "put more than" in message
            assert (flag(name) in message and "expected" in message) or is_inline, message
            assert len(message) < 1000, message
        else:
            assert "--" in message, message  # it contradicts another one, or says what it cannot mean
        return
    except (DataError, FileNotFoundError):
        assert name == "sources"  # a place that is not there
        return
    value = getattr(options, name)
    assert values_of(cls)[name].fits(value), (name, value)


@pytest.mark.parametrize("stage", STAGES)
def test_a_nasty_text_for_any_option_is_a_value_or_a_usage_error(stage: str) -> None:
    """On the command line each text, in a file every third: there it is read once more, and then alike."""
    for number, name in enumerate(values_of(config_of(stage))):
        for turn, text in enumerate(few(NASTY, f"{stage} {name}", 8), number):
            check(stage, name, text, by_file=False)
            if turn % 3 == 0 and text.isprintable() and len(text) < 900:
                check(stage, name, text, by_file=True)


@st.composite
def near_values(draw: st.DrawFn, cls: type, name: str) -> str:
    """Texts that are nearly what the option takes, or anything."""
    values = values_of(cls)[name]
    bounds = values.bounds
    ends = [bounds.least, bounds.most, bounds.least - 1, bounds.most + 1, int(bounds.most) * 10]
    numbers = st.one_of(
        st.sampled_from([f"{end:.17g}" for end in ends]), st.integers().map(str), st.floats().map(str)
    )
    words = st.sampled_from([str(word) for word in (*values.choices, *values.words, "auto", "true", "*=1w")])
    mangled = st.tuples(words, st.text(max_size=2)).map("".join)
    return draw(st.one_of(numbers, words, mangled, st.text(max_size=20)))


@pytest.mark.parametrize("stage", STAGES)
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_text_for_any_option_is_a_value_or_a_usage_error(stage: str, data: st.DataObject) -> None:
    cls = config_of(stage)
    name = data.draw(st.sampled_from(sorted(values_of(cls))))
    check(stage, name, data.draw(near_values(cls, name)), by_file=False)


@pytest.mark.parametrize("stage", STAGES)
def test_every_option_is_in_one_group_and_no_stage_shows_more_than_a_screen(stage: str, capsys) -> None:
    cls = config_of(stage)
    names = [field.name for group in groups_of(cls) for field in group.options]
    assert sorted(names) == sorted(values_of(cls))
    for group in groups_of(cls):
        assert group.name != "other" and 0 < len(group.about) <= 74, group.name
    with pytest.raises(SystemExit):
        load(cls, ["--help"], f"yanmo {stage}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 66 and max(map(len, lines)) <= 100


@pytest.mark.parametrize("stage", STAGES)
def test_each_default_is_within_its_own_bounds(stage: str) -> None:
    cls = config_of(stage)
    for name, field in cls.__dataclass_fields__.items():
        assert values_of(cls)[name].fits(field.default), name
        trial = field.metadata["trial"]
        assert trial is None or values_of(cls)[name].fits(trial), name
