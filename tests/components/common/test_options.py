"""One dataclass, four doors: flags, file, text of a file, and what KFP prints."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo.common.options import StageOptions, by_kind, load, load_given, opt, parse_bool, parse_int
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


@dataclass(frozen=True, kw_only=True)
class Left(StageOptions):
    """Options that can be left to themselves, below a bundle."""

    steps: int = opt(450, "optimizer steps", auto="what the bundle says, else {default}")
    rate: float = opt(0.02, "rate", auto="{default}")
    fast: bool = opt(False, "hurry", auto="where it helps, else {default}")
    way: str = opt("auto", "which way", choices=("auto", "a", "b"), auto="the better one")
    grain: str = opt("fine", "how fine", choices=("fine", "coarse"), auto="{default}")
    rows: int = opt(0, "rows", words={"auto": -1})
    bundle: str = opt("", "options that it stands for")

    @classmethod
    def bundles(cls, values):
        return dict(pair.split("=") for pair in values["bundle"].split(",") if pair)

    @classmethod
    def left_open(cls, values):
        return {"rate": values["steps"] / 1000}


_GIVEN = {
    "steps": st.integers(1, 9),
    "rate": st.sampled_from([0.5, 0.25]),
    "fast": st.booleans(),
    "way": st.sampled_from(["a", "b"]),
    "grain": st.sampled_from(["fine", "coarse"]),
}
_LAYER = st.fixed_dictionaries(
    {}, optional={name: st.one_of(st.sampled_from(["auto", ""]), values) for name, values in _GIVEN.items()}
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layers=st.tuples(_LAYER, _LAYER, _LAYER, _LAYER))
def test_auto_is_not_given_so_that_the_layer_below_counts(layers) -> None:
    """Of a bundle, a file, and two flags of the same name (argparse takes the last)."""
    bundle, file, *flags = layers
    argv = [f"--bundle={','.join(f'{n}={v}' for n, v in bundle.items())}"]
    argv += [f"--config={dump_yaml(file)}"] if file else []
    argv += [f"--{name}={value}" for layer in flags for name, value in layer.items()]
    expected = {n: v for layer in layers for n, v in layer.items() if v not in ("auto", "")}
    got, named = load_given(Left, argv, "yanmo left")
    assert {name for name in named if name in _GIVEN} == expected.keys()
    steps = expected.get("steps", 450)
    rest = {"steps": 450, "rate": steps / 1000, "fast": False, "way": "auto", "grain": "fine"} | expected
    assert {name: getattr(got, name) for name in _GIVEN} == rest
    assert all(type(getattr(got, name)) is type(value) for name, value in rest.items())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--steps=x", "--steps: expected an integer or auto, got 'x'"),
        ("--steps=1.5", "--steps: expected an integer or auto, got '1.5'"),
        ("--rate=fast", "--rate: expected a number or auto, got 'fast'"),
        ("--fast=AUTO", "--fast: expected true or false or auto, got 'AUTO'"),
        ("--way=c", r"--way: invalid choice: 'c' \(choose from 'auto', 'a', 'b'\)"),
        ("--grain=c", r"--grain: invalid choice: 'c' \(choose from 'auto', 'fine', 'coarse'\)"),
        ("--rows=x", "--rows: expected an integer or auto, got 'x'"),
        ("--bundle=rate=x", "--rate: expected a number or auto, got 'x'"),
    ],
)
def test_what_is_neither_a_value_nor_auto_is_refused_by_name(argv: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load(Left, [argv], "yanmo left")


def test_auto_of_an_option_that_has_a_word_for_it_is_that_word() -> None:
    got, named = load_given(Left, ["--rows=auto"], "yanmo left")
    assert got.rows == -1 and named == {"rows"}
    with pytest.raises(UsageError, match="expected an integer, got 'auto'"):
        toy("--steps=auto")


def test_help_says_what_auto_becomes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(Left, ["--help"], "yanmo left")
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: auto: what the bundle says, else 450)" in text
    assert "--way {auto,a,b}" in text and "--grain {auto,fine,coarse}" in text
