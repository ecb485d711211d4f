"""A marker in every option, variable and mounted secret that can hold one is found nowhere afterwards."""

from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
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
from yanmo.store.file_store import FileStore
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


@pytest.mark.parametrize("cls", [toy_stage.ToyOptions])
def test_nor_can_a_program_make_such_options(cls: type[Options]) -> None:
    for text in SHAPES:
        with pytest.raises(UsageError) as caught:
            cls(text=text)
        assert MARK not in str(caught.value)


def test_free_are_only_a_prompt_and_what_kfp_itself_gives() -> None:
    free = {name for cls in commands() for name in values_of(cls) if values_of(cls)[name].is_free}
    assert free == {"prompt", "executor_input"}


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


@pytest.mark.process
@pytest.mark.usefixtures("marked")
def test_no_process_of_a_run_has_it_among_its_arguments(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "yanmo.curate", "--sources=bundled"),
        *(f"--store={tmp_path / 'store'}", "--workers=2", "--metrics-port=-1"),
    ]
    seen = set[bytes]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            seen |= set(_arguments())
        said = process.stdout.read() if process.stdout else b""
    assert process.returncode == 0, said
    assert any(b"yanmo" in each for each in seen)
    assert not [each for each in seen if MARK.encode() in each]
    assert MARK.encode() not in said, said
    for path in (tmp_path / "store").rglob("*"):
        assert not path.is_file() or MARK.encode() not in path.read_bytes()


def _arguments() -> Iterator[bytes]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                yield (entry / "cmdline").read_bytes()
            except OSError:
                continue


class _Server(HTTPServer):
    asked: list[tuple[str, str]]
    leads_to: str


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.headers.get("Authorization", "")))
        self.send_response(302 if self.server.leads_to else 200)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to + self.path)
        self.end_headers()

    do_GET = do_POST = do_DELETE = do_PUT

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to tell."""


@pytest.fixture
def server() -> Iterator[Callable[[str], _Server]]:
    started: list[_Server] = []

    def start(leads_to: str = "") -> _Server:
        one = _Server(("127.0.0.1", 0), _Handler)
        one.asked, one.leads_to = [], leads_to
        threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def test_a_pushgateway_that_leads_elsewhere_takes_no_password_there(
    tmp_path: Path,
    server: Callable[..., _Server],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("YANMO_PUSHGATEWAY_USERNAME", "me")
    monkeypatch.setenv("YANMO_PUSHGATEWAY_PASSWORD", MARK)
    other = server()
    first = server(f"http://127.0.0.1:{other.server_port}")
    store = FileStore(tmp_path / "store")
    for end, code in (("done", 0), ("data", 65)):  # a PUT, a POST
        argv = [f"--store={store.root}", "--metrics-port=-1", f"--end={end}", "--force"]
        argv += [f"--pushgateway=http://127.0.0.1:{first.server_port}"]
        assert main(toy_stage.STAGE, toy_stage.STEPS, argv) == code
    assert first.asked and all(login.startswith("Basic ") for _, login in first.asked)
    assert other.asked == []
    assert "it answered 302" in capfd.readouterr().err
