"""One dataclass, four doors: flags, file, text of a file, and what KFP prints."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest

from yanmo.common.errors import UsageError
from yanmo.common.options import StageOptions, by_kind, load, opt, parse_bool, parse_int
from yanmo.common.options_file import dump_yaml, read_yaml


@dataclass(frozen=True, kw_only=True)
class Toy(StageOptions):
    """Do a thing."""

    steps: int = opt(100, "optimizer steps")
    rate: float = opt(3e-4, "peak learning rate, 0 % to 100 %")
    name: str = opt("", "a name")
    fast: bool = opt(False, "hurry")
    way: str = opt("a", "which way", choices=("a", "b"))
    workers: int = opt(1, "processes", kind="execution")

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--steps {self.steps}: expected at least 1")


def toy(*argv: str) -> Toy:
    return load(Toy, argv, "yanmo toy")


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("steps: 7\nrate: 1e-3\nname: 诗\nfast: true\n", encoding="utf-8")
    got = toy(f"--config={path}", "--steps=9")
    assert (got.steps, got.rate, got.name, got.fast, got.way) == (9, 1e-3, "诗", True, "a")


@pytest.mark.parametrize(
    "text", ["steps: 7", "{steps: 7, fast: true}", "steps: 7\nfast: true\n", " steps: 7"]
)
def test_the_text_of_a_file_does_as_well_as_its_name(text: str) -> None:
    assert toy("--config", text).steps == 7


def test_no_config_is_an_empty_config() -> None:
    assert toy("--config=") == toy()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepps: 7", "unrecognized arguments: --stepps=7"),
        ("steps: many", "expected an integer, got 'many'"),
        ("steps: [1]", r"option 'steps': expected a single value, got \[1\]"),
        ("steps:", "expected a single value, got None"),
        ("name: " + "x" * 1000, "put more than 1000 in a file"),
        ("{steps: 7", "cannot read options"),
        ("config: other.yaml", "cannot name another"),
        ("way: c", "invalid choice"),
    ],
)
def test_a_bad_options_file_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        toy("--config", text)
    assert "--config '" in str(error.value)


@pytest.mark.parametrize(
    "data", [b"- a\n- b\n", b"just words", b"\xff\xfe\x00", b"a: !!python/object:os.system {}"]
)
def test_what_is_no_mapping_of_options_is_a_usage_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "toy.yaml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"toy\.yaml"):
        read_yaml(path)


def test_a_contradiction_is_a_usage_error_even_if_raised_as_value_error() -> None:
    with pytest.raises(UsageError, match="--steps 0: expected at least 1"):
        toy("--steps=0")


def test_abbreviated_flags_are_refused() -> None:
    with pytest.raises(UsageError, match="unrecognized arguments: --step=3"):
        toy("--step=3")


@pytest.mark.parametrize(("text", "value"), [("1000", 1000), ("1000.0", 1000), ("1e3", 1000), ("-5", -5)])
def test_integers_as_kfp_prints_them(text: str, value: int) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize("text", ["", "1.5", "nan", "inf", "1,000", "true"])
def test_what_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises((argparse.ArgumentTypeError, OverflowError, ValueError)):
        parse_int(text)
    with pytest.raises(UsageError):
        toy(f"--steps={text}")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("false", False), ("FALSE", False)]
)
def test_booleans_as_kfp_yaml_and_python_spell_them(text: str, value: bool) -> None:
    assert parse_bool(text) is value
    assert toy(f"--fast={text}").fast is value


def test_a_boolean_flag_alone_means_true_and_nothing_else_is_a_boolean() -> None:
    assert toy("--fast").fast is True
    with pytest.raises(UsageError, match="expected true or false, got 'yes'"):
        toy("--fast=yes")


def test_help_shows_every_option_with_its_kind_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        toy("--help")
    text = capsys.readouterr().out
    assert ended.value.code == 0
    for name in (
        "--steps",
        "--rate",
        "--workers",
        "--store",
        "--run-id",
        "optimizer steps (default: 100)",
        "100 %",
    ):
        assert name in text
    assert text.index("options:") < text.index("execution:") < text.index("environment:")


def test_options_are_told_apart_by_kind_and_survive_yaml() -> None:
    options = toy("--rate=3e-05", "--name=诗: 词 # 赋", "--workers=2")
    assert by_kind(options, "execution") == {"workers": 2}
    values = by_kind(options, "semantic", "execution")
    assert toy("--config", dump_yaml(values)) == options


def test_an_empty_text_in_a_file_stays_empty() -> None:
    assert toy("--config", dump_yaml({"name": ""})).name == ""
