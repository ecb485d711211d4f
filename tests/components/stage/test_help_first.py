"""`--help` of a stage is answered before what its work needs is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from yanmo.common import names

STAGES = (*names.STAGES, "resolve")
HEAVY = {"numpy", "pyarrow", "torch", "deepspeed", "transformers", "prometheus_client", "yanmo.stage.run"}


def asked(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def imported_by(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("question", "answered"),
    [("--help", "usage: yanmo "), ("--help=all", "\nThe key names an output: "), ("--version", "yanmo 0.")],
)
def test_help_imports_nothing_of_the_work(stage: str, question: str, answered: str) -> None:
    done = asked(f"yanmo.{stage}", question)
    assert done.returncode == 0 and f"yanmo.{stage}.config" in imported_by(done)
    assert not imported_by(done) & HEAVY
    assert answered in done.stdout


def test_what_help_cannot_answer_is_refused_as_all_wrong_options_are() -> None:
    done = asked("yanmo.balance", "--help", "nix")
    assert done.returncode == 64 and done.stdout == ""
    assert "--help nix: expected an option, a group or all" in done.stderr


@pytest.mark.parametrize("command", ["history", "rollback", "set"])
def test_a_subcommand_of_a_stage_has_a_help_of_its_own(command: str) -> None:
    done = asked("yanmo.promote", command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: yanmo promote {command} ")
    assert not imported_by(done) & HEAVY


def test_what_the_help_of_a_subcommand_cannot_answer_is_refused_as_well() -> None:
    done = asked("yanmo.promote", "history", "--help", "nix")
    assert done.returncode == 64 and done.stdout == ""
    assert "--help nix: expected" in done.stderr
