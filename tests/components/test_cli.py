"""The console script: one table, nothing imported before it is asked for."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yanmo.cli import COMMANDS

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "components"), str(ROOT / "pipelines")]),
}


def yanmo(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yanmo.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, **variables})


def test_help_names_every_command_in_one_line_each() -> None:
    said = yanmo("--help")
    assert said.returncode == 0
    lines = said.stdout.splitlines()
    for name in COMMANDS:
        assert sum(line.split()[:1] == [name] for line in lines) == 1


ASKED = [["--help"], ["--version"], ["train", "--help", "all"], ["store", "--help"], ["run", "--help"]]


@pytest.mark.parametrize("argv", ASKED, ids=" ".join)
def test_a_reader_of_help_may_leave_before_its_end(argv: list[str]) -> None:
    """As `yanmo train --help all | head` does: not a fault, and not one that trying again mends."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "yanmo.cli", *argv]
    said = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    os.close(writing)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("argv", [[], ["trian"], [""], ["--versoin"]])
def test_an_unknown_command_is_a_usage_error_that_lists_the_known(argv: list[str]) -> None:
    said = yanmo(*argv)
    assert said.returncode == 64
    assert all(name in said.stderr for name in COMMANDS) and not said.stdout


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("eval", "evaluate"), ("stroe", "store")])
def test_a_command_that_is_nearly_one_is_named(typed: str, meant: str) -> None:
    assert f"unknown command {typed!r}; did you mean {meant}?" in yanmo(typed).stderr


def test_version_is_one_line_on_stdout() -> None:
    said = yanmo("--version")
    assert said.returncode == 0 and said.stdout.startswith("yanmo ") and said.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["store", "gc", "--delte"], "unknown option --delte; did you mean --delete?; see yanmo store gc"),
        (["promote", "history", "--to"], "unknown option --to; see yanmo promote history --help"),
        (["store", "lineag"], "COMMAND lineag: expected one of ls, show"),
        (["balance", "--help", "nix"], "--help nix: expected an option, a group or all"),
        (["promote", "history", "--help", "nix"], "--help nix: expected"),
        (["store", "gc", "--older-than", "9" * 400 + "d"], "expected an age such as 90s"),
        (
            ["store", "ls", "--scratch-gib", "inf"],
            "--scratch-gib inf: expected a number from 0 to 1000000000",
        ),
    ],
)
def test_a_tool_names_what_was_expected_and_what_was_meant(argv: list[str], message: str) -> None:
    said = yanmo(*argv)
    assert said.returncode == 64 and message in said.stderr, said.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_a_module_that_is_there(command: str) -> None:
    name = COMMANDS[command][0]
    module = importlib.util.find_spec(name)
    if module and module.submodule_search_locations:  # a package
        module = importlib.util.find_spec(f"{name}.__main__")
    assert module, f"yanmo {command}: {name} is not there or cannot be run"


def test_a_command_gets_its_arguments_as_they_are_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    by_cli = yanmo("resolve", "--store", str(tmp_path), "--channel", "a b")
    by_module = subprocess.run(
        [sys.executable, "-m", "yanmo.resolve", "--store", str(tmp_path), "--channel", "a b"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert by_cli.returncode == by_module.returncode == 64
    assert by_cli.stderr.split(" ", 1)[1] == by_module.stderr.split(" ", 1)[1] or "a b" in by_cli.stderr


@pytest.mark.parametrize(
    ("argv", "same"),
    [
        (["--help", "resolve"], ["resolve", "--help"]),
        (["-h", "store", "gc"], ["store", "gc", "--help"]),
        (["store", "--help", "gc"], ["store", "gc", "--help"]),
    ],
)
def test_help_may_stand_before_the_command_that_it_is_about(argv: list[str], same: list[str]) -> None:
    said = yanmo(*argv)
    assert said.returncode == 0 and said.stdout == yanmo(*same).stdout and "usage: yanmo" in said.stdout


HEAVY = {
    *(
        "kfp",
        "kubernetes",
        "kfp_server_api",
        "urllib3",
        "yaml",
        "torch",
        "deepspeed",
        "transformers",
        "numba",
        "numpy",
        "pyarrow",
    ),
    *("jieba", "opencc", "tokenizers", "prometheus_client", "requests", "jinja2", "rich", "mlflow", "wandb"),
}
"""What a command imports for its work and not for its help: with any of them it takes 0.3 s and more."""


@pytest.mark.process(few=3)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_imports_what_only_the_work_needs(command: str) -> None:
    """Neither that of a command nor those of its subcommands."""
    told, loaded = help_of(command)
    assert told.startswith(f"usage: yanmo {command} ") and not loaded & HEAVY
    listed = told.partition("\nCommands (")[2].partition("\n\n")[0].splitlines()[1:]
    subcommands = [line.split()[0] for line in listed if line.startswith("  ") and line[2:3] != " "]
    assert bool(subcommands) == (f"usage: yanmo {command} COMMAND" in told)
    for each in [*subcommands, *(["reap"] if command == "launch" else [])]:
        told, loaded = help_of(command, each)
        assert told.startswith(f"usage: yanmo {command} {each} ") and not loaded & HEAVY


def help_of(*words: str) -> tuple[str, set[str]]:
    """What `--help` prints, and the packages that it imports."""
    command = [sys.executable, "-X", "importtime", "-m", "yanmo.cli", *words, "--help"]
    said = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    names = (line.rpartition("|")[2].strip() for line in said.stderr.splitlines())
    return said.stdout, {name.partition(".")[0] for name in names}


def test_a_missing_package_names_the_extra_and_not_a_traceback(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['kfp'] = None; "
        f"sys.argv = ['yanmo', 'compile', '--out', {str(tmp_path)!r}]; from yanmo.cli import main; main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert said.returncode == 78, said.stderr
    assert "the Python package 'kfp' is not installed" in said.stderr and "Traceback" not in said.stderr


def test_a_fault_in_yanmos_own_imports_is_not_hidden_as_a_missing_package(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import yanmo.gone")
    code = (
        f"import sys, yanmo.cli; sys.path.append({str(tmp_path)!r}); "
        "yanmo.cli.COMMANDS['broken'] = ('broken', ''); sys.argv = ['yanmo', 'broken']; yanmo.cli.main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert said.returncode not in (0, 78) and "yanmo.gone" in said.stderr


def test_sigterm_ends_a_command_that_is_still_importing_even_as_process_1(tmp_path: Path) -> None:
    """Process 1 of a container ignores what it has no handler for, as does one that was told to ignore it."""
    slow = "import sys, time\nprint('here', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    (tmp_path / "slow.py").write_text(slow, encoding="utf-8")
    code = (
        "import signal, sys, yanmo.cli; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"sys.path.append({str(tmp_path)!r}); yanmo.cli.COMMANDS['slow'] = ('slow', ''); "
        "sys.argv = ['yanmo', 'slow']; yanmo.cli.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stderr and process.stderr.readline() == "here\n"
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        finally:
            process.kill()
