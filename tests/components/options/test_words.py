"""Command lines of tools: words, options of several values, groups of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load, load_command
from yanmo.options.fields import REQUIRED, Options, opt, word
from yanmo.options.shared import ToolOptions
from yanmo.tools.cache.command import TOOL as CACHE
from yanmo.tools.store.command import TOOL as STORE
from yanmo.tools.store.options import Age

PLAIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True, kw_only=True)
class Copy(Options, group="copy"):
    """Copy things.

        yanmo copy A B

    They are copied one by one.
    """

    first: str = word("the first thing")
    rest: tuple[str, ...] = word("further things", ())
    to: str = opt("", "where to")
    most: int = opt(3, "how many", least=-10, most=9)
    sizes: tuple[int, ...] = opt((1,), "sizes", least=1, most=99)
    ways: tuple[str, ...] = opt(("a",), "ways", choices=("a", "b c"))
    age: Age = opt(Age("7d"), "how old")
    tags: tuple[str, ...] = opt((), "tags")
    quick: bool = opt(False, "hurry")


@dataclass(frozen=True, kw_only=True)
class Send(ToolOptions, group="send"):
    """Send files."""

    files: tuple[str, ...] = opt((), "files")
    why: str = opt(REQUIRED, "the reason")
    tags: tuple[str, ...] = opt((), "tags", metavar="NAME=VALUE")
    quick: bool = opt(False, "at once")


def copy(*argv: str) -> Copy:
    return load(Copy, argv, "yanmo copy")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SOME_TEXT = st.one_of(
    TEXT,
    st.sampled_from(["", "-", "--", "--to", "-h", "--help", "-5", "a=b", "--most=2", "诗", "no", "true"]),
).filter(lambda text: text.strip(" \t\n,") or "," not in text)
WORD = SOME_TEXT.filter(lambda text: not text.startswith("-") or text == "-")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "to": SOME_TEXT,
    "most": st.integers(-10, 9),
    "sizes": st.lists(st.integers(1, 99), min_size=1, max_size=3).map(tuple),
    "ways": st.lists(st.sampled_from(["a", "b c"]), min_size=1, max_size=2).map(tuple),
    "age": st.builds("{}{}".format, st.integers(0, 99), st.sampled_from("smhdw")).map(Age),
    "quick": st.booleans(),
}


def spelling(name: str, value: Any, alone: bool) -> list[str]:
    """One of the ways in which a person gives an option this value."""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    if name == "quick":
        return ["--quick"] if value and alone else [f"--quick={text}"]
    is_option = text.startswith("--") or text == "-h"
    return [f"--{name}", text] if alone and not is_option else [f"--{name}={text}"]


@PLAIN
@given(data=st.data())
def test_any_words_and_options_in_any_order_are_read_as_they_were_meant(data: st.DataObject) -> None:
    words = data.draw(st.lists(WORD, min_size=1, max_size=4))
    behind = data.draw(st.lists(SOME_TEXT, max_size=3))
    options = data.draw(st.fixed_dictionaries({}, optional=VALUES))
    parts = iter([spelling(n, value, data.draw(st.booleans())) for n, value in options.items()])
    order = data.draw(st.permutations([True] * len(words) + [False] * len(options)))
    next_word = iter([each] for each in words)
    argv = [text for is_word in order for text in next(next_word if is_word else parts)]
    got = copy(*argv, *(["--", *behind] if behind else []))
    assert [got.first, *got.rest] == words + behind
    assert {name: getattr(got, name) for name in options} == options


@PLAIN
@given(argv=st.lists(st.one_of(SOME_TEXT, st.sampled_from(["--to", "--most", "--age=1d", "x"])), max_size=6))
def test_any_command_line_is_options_or_help_or_a_usage_error(argv: list[str]) -> None:
    for cls in (Copy, Send):
        try:
            got: object = load(cls, argv, "yanmo x")
        except UsageError as error:
            assert "; see yanmo x --help" in str(error) or str(error).startswith("--help"), str(error)
            assert str(error).isprintable()
        except SystemExit as ended:
            assert ended.code == 0 and {"-h", "--help"} & set(argv)
        else:
            assert isinstance(got, cls)


def test_one_that_is_true_or_false_leaves_the_next_word_alone_where_there_are_words() -> None:
    got = copy("--quick", "no", "--quick=yes", "on")
    assert (got.first, got.rest, got.quick) == ("no", ("on",), True)
    assert load(Send, ["--why=x", "--quick", "no"], "yanmo send").quick is False


def test_an_option_of_several_texts_takes_those_that_follow_and_may_be_given_again() -> None:
    got = load(Send, ["--files", "a", "b", "--tags", "x=1", "--why", "w", "--tags=y=2,3", "--files=c"], "x")
    assert (got.files, got.tags) == (("a", "b", "c"), ("x=1", "y=2,3"))
    among_words = copy("--tags", "x", "a", "--tags=y,z", "b")
    assert (among_words.tags, among_words.first, among_words.rest) == (("x", "y,z"), "a", ("b",))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "FIRST is missing: expected the first thing; see yanmo copy --help"),
        (["a", "--too=b"], "unknown option --too; did you mean --to?; see yanmo copy --help"),
        (["a", "--first=b"], "unknown option --first"),
        (["a", "-x"], "unknown option -x"),
        (["a", "--to", "--quick"], "--to: expected a value after it"),
        (["a", "--to", "--", "b"], "--to: expected a value after it"),
        (["a", "--sizes=1,100"], "--sizes 100: expected a whole number from 1 to 99, or several with commas"),
        (["a", "--sizes=,"], "--sizes ,: expected a whole number from 1 to 99, or several with commas"),
        (["a", "--ways=c"], "--ways c: expected some of a, b c"),
        (["a", "--age=7"], "--age 7: expected an age such as 90s"),
        (["a\0b"], "FIRST 'a\\x00b': expected a text"),
        (["a", "--config=x.yaml"], "unknown option --config"),
        (["a", "--help", "mots"], "--help mots: expected an option, a group or all; .*did you mean most"),
    ],
)
def test_what_cannot_be_says_what_was_expected(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", "[?]").replace("\\", "\\\\")):
        copy(*argv)


def test_what_must_be_given_is_asked_for_and_a_word_too_many_refused() -> None:
    with pytest.raises(UsageError, match="--why is missing: expected the reason; see yanmo send --help"):
        load(Send, [], "yanmo send")
    with pytest.raises(UsageError, match="a: expected --OPTION; see yanmo send --help"):
        load(Send, ["--why=x", "a"], "yanmo send")
    with pytest.raises(TypeError, match="why"):
        Send()  # type: ignore[call-arg]


def help_of(capsys: pytest.CaptureFixture[str], cls: type[Options], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load(cls, argv, "yanmo x")
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_of_a_tool_shows_its_words_and_all_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, Copy, "--help")
    assert text.startswith("usage: yanmo x FIRST [REST ...] [--OPTION=VALUE ...]\n\nCopy things.\n")
    assert "\n    yanmo copy A B\n\nThey are copied one by one.\n" in text, "an example stays as it is"
    assert text == help_of(capsys, Copy, "a", "--help", "all")
    assert "(default: 7d)" in text and "  --sizes N,... " in text and "  --age AGE " in text
    assert "[not recorded]" not in text and "key" not in text, "a tool makes no output"
    assert "usage: yanmo x --why=TEXT [--OPTION=VALUE ...]" in help_of(capsys, Send, "-h")


def test_help_of_all_commands_says_the_exit_codes_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_command({"copy": Copy, "send": Send}, ["--help", "all"], "yanmo x", "")
    text = capsys.readouterr().out
    assert text.count("Exit codes:") == 1 and "usage: yanmo x copy FIRST" in text and "--why TEXT" in text


COMMANDS = {name: each.options for tool in (STORE, CACHE) for name, each in tool.subcommands.items()}


@PLAIN
@given(data=st.data())
def test_a_command_with_a_letter_too_few_or_two_changed_about_is_recognised(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in COMMANDS if len(name) > 3]))
    at = data.draw(st.integers(0, len(name) - 2))
    few, swapped = name[:at] + name[at + 1 :], name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    for typed in {few, swapped} - COMMANDS.keys():
        with pytest.raises(UsageError, match=rf"COMMAND {typed}: .*did you mean {name}[?]; see yanmo x"):
            load_command(COMMANDS, [typed], "yanmo x", "")
        with pytest.raises(UsageError, match=rf"--help {typed}: .*did you mean {name}[?]"):
            load_command(COMMANDS, ["--help", typed], "yanmo x", "")


@PLAIN
@given(number=st.integers(0, 5000), unit=st.sampled_from("smhdw"))
def test_an_age_is_so_many_seconds(number: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    assert Age(f"{number}{unit}").seconds == number * seconds[unit]


@PLAIN
@given(
    text=st.one_of(TEXT, st.sampled_from(["d", "7", "-1d", "nand", "infd", "1e300d", "36501d", "7 d", "7D"]))
)
def test_what_is_no_age_is_refused(text: str) -> None:
    try:
        assert 0 <= Age(text).seconds <= 100 * 365 * 86400
    except ValueError:
        with pytest.raises(UsageError, match="expected an age such as 90s"):
            copy("a", f"--age={text}")
