"""The first task refuses what a later one would refuse, by the name of the form's field."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from yanmo.resolve.__main__ import main

STAGES = ("curate", "balance", "tokenize", "train", "evaluate", "promote")
FORM = {"curate.sources": "poems.jsonl", "balance.quotas": "alpha=0.7", "train.steps": "auto"}


def flags(tmp_path: Path, form: dict[str, str], line: str = "") -> list[str]:
    given = {**FORM, **form}
    return [
        f"--store={tmp_path / 'store'}",
        *(f"--stages={stage}" for stage in STAGES),
        *(f"--form={name}={value}" for name, value in given.items()),
        f"--others={line}",
    ]


@pytest.mark.parametrize(
    ("form", "line", "words"),
    [
        ({"train.steps": "many"}, "", "train_steps: --steps many: expected a whole number"),
        ({"balance.quotas": "many"}, "", "data_quotas: --quotas: expected class=amount"),
        ({"curate.sources": ""}, "", "data_sources: --sources is empty"),
        ({}, "train.warmup=3", "train: options of train: unknown option 'warmup'"),
        ({}, "train.ranks=5", "train: --batch-rows 32 does not divide among --ranks 5"),
        ({}, "train.steps=5", "train: options names --steps, which the pipeline itself sets"),
        ({}, "tran.steps=5", "options: tran.steps: no stage tran, did you mean train?"),
        ({}, "warmup_steps: 20", "options: warmup_steps:: expected STAGE.OPTION=VALUE"),
        ({}, "train.warmup_steps=20 train.warmup-steps=30", "train.warmup_steps is given twice"),
        ({}, "balance.by='author", "no closing quotation"),
        ({}, "absent.txt", "options: absent.txt: no such file"),
        ({}, "x" * 5000 + "=", "5001 characters, at most 4000"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: dict[str, str], line: str, words: str
) -> None:
    assert main(flags(tmp_path, form, line)) == 64
    said = capsys.readouterr().err
    assert words in said.replace("; did you", ", did you"), said
    assert "Traceback" not in said and "resolve error 64: " in said.splitlines()[-1]


def executor_input(tmp_path: Path) -> dict[str, Any]:
    outputs = {"parameters": {"options": {"outputFile": str(tmp_path / "line")}}}
    return {"outputs": {**outputs, "outputFile": str(tmp_path / "out.json")}}


@pytest.mark.parametrize("kind", ["line", "file", "uri"])
def test_the_line_of_options_is_read_once_and_handed_on(tmp_path: Path, kind: str) -> None:
    line = "train.warmup_steps=20 curate.default_genre='白话 文' balance.quotas=ci=200%,fu=200%"
    file = tmp_path / "options.txt"
    file.write_text("# a night\n" + line.replace(" b", "\nb") + "\n", encoding="utf-8")
    given = {"line": line, "file": str(file), "uri": file.as_uri()}[kind]
    form = {name: value for name, value in FORM.items() if name != "balance.quotas"}
    argv = [word for word in flags(tmp_path, {}, given) if not word.startswith("--form=balance.quotas")]
    assert form and main([*argv, f"--executor-input={json.dumps(executor_input(tmp_path))}"]) == 0
    assert (tmp_path / "line").read_text(encoding="utf-8") == line


def test_it_reads_the_options_of_every_stage_with_neither_images_libraries(tmp_path: Path) -> None:
    """It runs in the data image, where torch is not, and must not need the data libraries either."""
    hide = (
        "import sys; [sys.modules.__setitem__(n, None) for n in ('torch', 'deepspeed', 'jieba', 'numpy')]; "
    )
    run = f"from yanmo.resolve.__main__ import main; sys.exit(main({flags(tmp_path, {})!r}))"
    done = subprocess.run([sys.executable, "-c", hide + run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
