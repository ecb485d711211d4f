"""A marker in every option, variable and mounted secret that can hold one is found nowhere afterwards."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy_stage
from config_file import written

from yanmo.common.errors import UsageError, advice
from yanmo.common.shell_words import BARE
from yanmo.options.command_line import load
from yanmo.options.fields import Options, flag, names_of, option_fields, values_of
from yanmo.options.one_line import as_line
from yanmo.options.values import WrongValue
from yanmo.options.yaml_file import dump_yaml
from yanmo.stage import failing
from yanmo.stage.run import main
from yanmo_pipelines.cluster.submit import SubmitOptions

ROOT = Path(__file__).parents[2]
MARK = "K7MDENGbPxRfiCY"
SHAPES = (
    f"http://me:{MARK}@h:1", f"https://{MARK}@h", f"http://me:a/{MARK}@h", f"http://me:a {MARK} b@h",
    f"http://me:'{MARK}\"@h", f"http://me:a@{MARK}@h", f"http://me:?{MARK}#@h", f"http://h/?k={MARK}",
    f"https://b.s3.amazonaws.com/a?X-Amz-Signature={MARK}", f"s3://me:{MARK}@b/c", f"s3://b/a?X-Amz-Signature={MARK}",
    f"mlflow=http://u:{MARK}/w@h", f"mlflow=http://{MARK}@h,wandb=x", f"postgresql://u:{MARK}@h/db",
)  # fmt: skip
VARIABLES = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MINIO_SECRET_KEY", "YANMO_PUSHGATEWAY_PASSWORD"),
    *("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
)
ADDRESSES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "MLFLOW_TRACKING_URI")
MOUNTED = (
    *("store", "endpoint_url", "pushgateway_url", "pushgateway_password", "secret_access_key"),
    *("session_token", "secretkey"),
)


@functools.cache
def commands() -> list[type[Options]]:
    """Every class of options that there is."""
    for root in ("components", "pipelines"):
        for path in sorted((ROOT / root).rglob("*.py")):
            if re.search(r"^class \w+\(.*Options", path.read_text(encoding="utf-8"), re.MULTILINE):
                importlib.import_module(".".join(path.relative_to(ROOT / root).with_suffix("").parts))

    def below(cls: type[Options]) -> Iterator[type[Options]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    found = {cls for cls in below(Options) if cls.__module__.startswith("yanmo")}
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def refusal(cls: type[Options], argv: list[str]) -> str:
    with pytest.raises(UsageError) as caught:
        load(cls, argv, "yanmo toy")
    return f"{caught.value!r} {advice(caught.value)}"


def test_no_option_of_any_command_takes_an_address_with_secrets_or_shows_it() -> None:
    """By its reader each shape, by the command line one of them."""
    seen = set[int]()
    declared = [(command, field) for command in commands() for field in option_fields(command)]
    for number, (cls, field) in enumerate(declared):
        values = values_of(cls)[field.name]
        if id(field) in seen or values.is_free:  # one of all stages
            continue
        seen.add(id(field))
        for text in (*SHAPES, *([f"me:{MARK}@h", f"h/?k={MARK}"] if values.is_address else [])):
            with pytest.raises(WrongValue) as caught:
                values.read(text)
            assert MARK not in str(caught.value), (cls, field.name)
        text = SHAPES[number % len(SHAPES)]
        words = names_of(cls, kind="word")
        before = ["x"] * words.index(field.name) if field.name in words else []
        argv = [*before, text] if field.name in words else [f"{flag(field.name)}={text}"]
        assert MARK not in refusal(cls, argv), (cls, field.name)
    assert len(seen) > 300


@pytest.mark.parametrize("cls", [SubmitOptions, toy_stage.ToyOptions])
@pytest.mark.parametrize("text", SHAPES)
def test_nor_does_a_line_of_options_a_file_a_wrong_option_or_word(cls: type[Options], text: str) -> None:
    line = as_line({"curate.sources": text})
    for argv in (
        [f"--options={line}"],
        [f"--soruces={text}"],
        [text],
        [f"--{text}"],
        [f"--log-level={text}"],
    ):
        assert MARK not in refusal(cls, argv), argv
    if cls is toy_stage.ToyOptions:
        for argv in (
            [f"--config={written(dump_yaml({'text': text}))}"],
            [f"--config={text}"],
        ):
            assert MARK not in refusal(cls, argv), argv


def test_a_command_that_is_shown_knows_which_options_are_addresses() -> None:
    declared = {
        flag(f.name) for cls in commands() for f in option_fields(cls) if f.metadata["metavar"] == "URL"
    }
    assert declared == set(BARE)


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker in all that a run reads beside its command."""
    for name in VARIABLES:
        monkeypatch.setenv(name, MARK)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    folder = tmp_path / "mounted"
    folder.mkdir()
    for name in MOUNTED:
        is_address = name in ("store", "endpoint_url", "pushgateway_url")
        (folder / name).write_text(f"http://me:{MARK}@127.0.0.1:9" if is_address else MARK, encoding="utf-8")
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(folder))
    monkeypatch.setattr(failing, "TERMINATION_LOG", tmp_path / "termination-log")
    failing.TERMINATION_LOG.touch()


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("place", [*ADDRESSES, ""])
@pytest.mark.parametrize(
    "flags", [(), ("--end=data",), ("--end=bug",), ("--store=s3://bucket/p",), ("--store=",)]
)
def test_a_run_leaves_the_marker_nowhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    place: str,
    flags: tuple[str, ...],
) -> None:
    if place:
        monkeypatch.setenv(place, f"http://me:a {MARK}@127.0.0.1:9/?k={MARK}")
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "0")
    argv = [f"--store={tmp_path / 'store'}", "--run-id=r1", "--metrics-port=-1", "--log-level=debug", *flags]
    main(toy_stage.STAGE, toy_stage.STEPS, argv)
    left_nowhere(tmp_path, capfd)


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("text", SHAPES)
@pytest.mark.parametrize(
    "option", ["text", "endpoint", "store", "pushgateway", "channel", "inputs", "scratch", "no"]
)
def test_nor_does_a_command_that_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    argv = [f"--store={tmp_path / 'store'}", "--run-id=r1", f"--{option}={text}"]
    assert main(toy_stage.STAGE, toy_stage.STEPS, argv) == 64
    left_nowhere(tmp_path, capfd)


def left_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = capfd.readouterr()
    assert MARK not in said.out + said.err
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent.name != "mounted":
            assert MARK.encode() not in path.read_bytes(), path
    assert failing.TERMINATION_LOG.exists()
