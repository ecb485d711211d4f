"""One dataclass, three doors: flags, file, and what KFP prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from config_file import written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.options.command_line import load, load_given
from yanmo.options.fields import by_kind, opt
from yanmo.options.shared import StageOptions
from yanmo.options.yaml_file import dump_yaml, read_yaml
from yanmo.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Toy(StageOptions, group="toy"):
    """Do a thing."""

    steps: int = opt(100, "optimizer steps", least=1, form=True, often=True)
    rate: float = opt(3e-4, "peak learning rate, 0 % to 100 %")
    name: str = opt("", "a name")
    fast: bool = opt(False, "hurry")
    way: str = opt("a", "which way", choices=("a", "b"))
    workers: int = opt(1, "processes", kind="execution")

    def contradictions(self) -> list[str]:
        return ["--fast leaves no time for --way b"] if self.fast and self.way == "b" else []


def toy(*argv: str) -> Toy:
    return load(Toy, argv, "yanmo toy")


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("steps: 7\nrate: 1e-3\nname: 诗\nfast: true\n", encoding="utf-8")
    got = toy(f"--config={path}", "--steps=9")
    assert (got.steps, got.rate, got.name, got.fast, got.way) == (9, 1e-3, "诗", True, "a")


def test_a_variable_is_the_default_of_the_store_and_its_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """README's `yanmo cache show demo/tokenize` read another store than `make demo` wrote."""
    monkeypatch.setenv("YANMO_STORE", "s3://b/a")
    monkeypatch.setenv("YANMO_CHANNEL", "nightly")
    assert (toy().store, toy().channel) == ("s3://b/a", "nightly")
    assert toy("--channel=x").channel == toy(f"--config={written('channel: x')}").channel == "x"
    assert load_given(Toy, ["--steps=2"], "yanmo toy")[1] == {"steps"}, "it was not given to this run"
    monkeypatch.setenv("YANMO_STORE", "")
    assert toy().store == "runs/store"


def test_of_several_lines_of_options_the_last_wins_option_by_option() -> None:
    """A Job gives the settings of its namespace and then its own."""
    got = toy("--options=toy.steps=7 toy.name=诗 train.steps=9", "--options=toy.steps=8", "--options=")
    assert (got.steps, got.name) == (8, "诗")
    assert toy("--options=toy.steps=7", "--steps=9").steps == 9


def test_a_line_that_names_no_stage_is_refused_where_no_first_task_has_looked() -> None:
    with pytest.raises(UsageError, match="no stage trian; did you mean train"):
        toy("--options=trian.steps=20")
    assert toy("--options=mine.steps=20", "--executor-input={}").steps == 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stepps: 7", "unknown option 'stepps'; did you mean steps[?]"),
        ("steps: many", "--steps many: expected a whole number from 1 to 1000000000"),
        ("steps: [1]", "option 'steps': expected a single value, found a list"),
        ("steps: 1\nsteps: 2", "'steps' is named twice, the second time in line 2"),
        ("{run-id: a, run_id: b}", "option 'run_id' is named twice"),
        ("{[1, 2]: b}", "expected a name, found a sequence"),
        (f"{{{'长' * 90}: 1}}", "unknown option '长{50}[.]{3} .90 characters.'; see --help all"),
        ("steps: 1\n---\nsteps: 2", "expected lines of `name: value`; "),
        ("way: c", "--way c: expected one of a, b"),
    ],
)
def test_a_bad_options_file_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        toy("--config", path := written(text))
    assert path in str(error.value)


def test_a_name_that_is_spelled_nearly_so_is_found() -> None:
    assert did_you_mean("stepss", ("seed", "steps", "stride"), "--") == "; did you mean --steps?"
    assert did_you_mean("gpu", ("cpu", "cuda", "mps")) == ""
    assert did_you_mean("stride", ("seed", "steps", "store")) == ""
    rates = ("adam-learning-rate", "head-learning-rate")
    assert did_you_mean("learning-rate", rates, "--") == f"; did you mean --{', --'.join(rates)}?"
    assert did_you_mean("batch_size", ("seed", "steps")) == ""
    with pytest.raises(UsageError, match=r"--schedule cosin: .*; did you mean cosine"):
        load(TrainConfig, ["--schedule=cosin"], "yanmo train")
    with pytest.raises(UsageError, match=r"--micro-batch outo: .*; did you mean auto"):
        load(TrainConfig, ["--micro-batch=outo"], "yanmo train")


@pytest.mark.parametrize(
    "data", [b"- a\n- b\n", b"just words", b"\xff\xfe\x00", b"a: !!python/object:os.system {}"]
)
def test_what_is_no_mapping_of_options_is_a_usage_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "toy.yaml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"toy\.yaml"):
        read_yaml(path)


def test_what_cannot_be_is_refused_by_the_class_as_by_the_command_line() -> None:
    with pytest.raises(UsageError, match="--fast leaves no time for --way b"):
        toy("--fast", "--way=b")
    with pytest.raises(UsageError, match="--fast leaves no time"):
        Toy(fast=True, way="b")
    with pytest.raises(UsageError, match="--steps 0: expected a whole number from 1 to 1000000000"):
        Toy(steps=0)


def test_abbreviated_flags_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown option --step; did you mean --steps"):
        toy("--step=3")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("1000.0", 1000), ("1e3", 1000), ("010", 10), ("1_000", 1000), (" 7 ", 7)],
)
def test_integers_as_kfp_prints_them(text: str, value: int) -> None:
    assert toy(f"--steps={text}").steps == value
    assert toy("--config", written(f"{{steps: {text}}}")).steps == value


@pytest.mark.parametrize("text", ["", "1.5", "nan", "1,000", "true", "1e300", "9" * 5000, "０", "1_", "-5"])
def test_what_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--steps .*: expected a whole number from 1 to 1000000000"):
        toy(f"--steps={text}")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("no", False), ("FALSE", False), ("on", True)]
)
def test_booleans_as_kfp_yaml_and_python_spell_them(text: str, value: bool) -> None:
    assert toy(f"--fast={text}").fast is value


def test_a_boolean_flag_alone_means_true_and_nothing_else_is_a_boolean() -> None:
    assert toy("--fast").fast is True
    with pytest.raises(UsageError, match="--fast 1: expected true or false"):
        toy("--fast=1")


def help_of(cls: type, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load(cls, argv, "yanmo toy")
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_shows_what_is_set_often_and_the_names_of_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(Toy, capsys, "--help")
    assert text.startswith("usage: yanmo toy [--OPTION=VALUE ...]")
    for name in (
        "--steps N",
        "--store TEXT",
        "toy (6)",
        "store (8)",
        "run (11)",
        "--help GROUP",
        "of 25)",
    ):
        assert name in text
    assert "--rate" not in text and "--run-id" not in text


@pytest.mark.parametrize(
    "argv", [["--help", "all"], ["--help=all"], ["-h", "all"], ["--steps=3", "--help", "all"]]
)
def test_help_all_shows_every_option_once_with_bounds_default_and_kind(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(Toy, capsys, *argv)
    for name in Toy.__dataclass_fields__:
        assert text.count(f"  --{name.replace('_', '-')} ") == 1, name
    flat = " ".join(text.split())
    assert "optimizer steps (default: 100) --rate" in flat
    assert "0 % to 100 % (default: 0.0003)" in flat
    assert "processes (default: 1) [not in the key]" in flat
    assert "which way (a, b; default: a)" in flat
    assert "(-1 to 65535; default: 0) [not recorded]".replace("(", "(from ") in flat
    assert max(map(len, text.splitlines())) <= 100
    assert "  --config FILE " in text and "  --options LINE " in text
    assert "  --config FILE " in help_of(Toy, capsys, "--help", "config")


@pytest.mark.parametrize("topic", ["toy", "steps", "run-id", "STORE", "run"])
def test_help_of_a_group_or_an_option_shows_only_that(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(Toy, capsys, "--help", topic)
    name = topic.strip("-").lower()
    groups = {"toy": "--rate", "run": "--run-id", "store": "--endpoint"}
    assert f"  {groups.get(name, '--' + name)} " in text
    assert len(text) < len(help_of(Toy, capsys, "--help", "all")) and "Make" not in text


def test_help_of_what_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"--help stepps: expected an option, a group or all; .*mean steps"):
        toy("--help", "stepps")


def test_options_are_told_apart_by_kind_and_survive_yaml() -> None:
    options = toy("--rate=3e-05", "--name=诗: 词 # 赋", "--workers=2")
    assert by_kind(options, "execution") == {"workers": 2}
    values = by_kind(options, "semantic", "execution")
    assert toy("--config", written(dump_yaml(values))) == options


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
    """Of a bundle, a file, and two flags of the same name (the last one counts)."""
    bundle, file, *flags = layers
    argv = [f"--bundle={','.join(f'{n}={v}' for n, v in bundle.items())}"]
    argv += [f"--config={written(dump_yaml(file))}"] if file else []
    argv += [f"--{name}={value}" for layer in flags for name, value in layer.items()]
    expected = {n: v for layer in layers for n, v in layer.items() if v not in ("auto", "")}
    got, named = load_given(Left, argv, "yanmo left")
    assert {name for name in named if name in _GIVEN} == expected.keys()
    steps = expected.get("steps", 450)
    rest = {"steps": 450, "rate": steps / 1000, "fast": False, "way": "auto", "grain": "fine"} | expected
    assert {name: getattr(got, name) for name in _GIVEN} == rest
    assert all(type(getattr(got, name)) is type(value) for name, value in rest.items())


def test_auto_of_an_option_that_has_a_word_for_it_is_that_word() -> None:
    got, named = load_given(Left, ["--rows=auto"], "yanmo left")
    assert got.rows == -1 and named == {"rows"}
    with pytest.raises(UsageError, match="--steps auto: expected a whole number from 1"):
        toy("--steps=auto")


def test_help_says_what_auto_becomes(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(help_of(Left, capsys, "--help", "all").split())
    assert "(default: auto: what the bundle says, else 450)" in text
    assert "which way (a, b; default: auto: the better one)" in text
    assert "how fine (fine, coarse; default: auto: fine)" in text


def test_a_wrong_option_in_a_preset_of_ones_own_is_named_by_its_file(tmp_path) -> None:
    from yanmo.train.config import STAGE

    path = tmp_path / "mine.yaml"
    for text, found in (("stepr: 5", "unknown option 'stepr'"), ("steps: x", "--steps x: expected")):
        path.write_text(text)
        with pytest.raises(UsageError, match=f"--preset {path}: {found}"):
            load(STAGE.config, [f"--preset={path}"], "yanmo train")
