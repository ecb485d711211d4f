"""The whole road on real text, by the compiled pipeline: what runs, what does not run again, and why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_road import ALL, ENV, SETTINGS, committed_in, stages_of, write_text

from yanmo_pipelines.run import main

PER_GENRE = 120


def run(folder: Path, **changed: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """One `yanmo run`, and the stages that made something."""
    command = [sys.executable, "-m", "yanmo.cli", "run", "--store=runs/demo", "--channel=demo"]
    for name, value in {"data_sources": "text.jsonl", **SETTINGS, **changed}.items():
        command += ["--set", f"{name}={value}"]
    ended = subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True)
    return ended, stages_of(ended)


def compared_by_kfp(folder: Path) -> list[dict[str, dict[str, float]]]:
    """What KFP's page "Compare runs" gets: for each run the numbers of each task's artifact Metrics."""
    runs: dict[Path, dict[str, dict[str, float]]] = {}
    for path in sorted((folder / "runs/demo/kfp").rglob("executor_output.json")):
        of_run = runs.setdefault(path.relative_to(folder / "runs/demo/kfp").parents[-2], {})
        for listed in json.loads(path.read_text(encoding="utf-8")).get("artifacts", {}).values():
            for one in filter(is_metrics, listed["artifacts"]):
                of_run[path.parent.name] = one["metadata"]
    return list(runs.values())


def is_metrics(artifact: dict[str, Any]) -> bool:
    return bool(artifact["type"]["schemaTitle"] == "system.Metrics")


def check_that_costs_add_up(printed: str) -> None:
    """Seconds and CPU seconds by task, as the end of a run shows them."""
    rows = re.findall(r"^([a-z][a-z -]+?) +(\d+\.\d) +(\d+\.\d)", printed, flags=re.MULTILINE)
    wall, cpu = ({row[0]: float(row[column]) for row in rows} for column in (1, 2))
    for figures in (wall, cpu):
        assert figures["all"] == pytest.approx(
            sum(figures.values()) - figures["all"], abs=0.05 * len(figures)
        )


@pytest.mark.road
def test_the_road_from_raw_text_to_a_champion_and_what_a_change_makes_again(tmp_path: Path) -> None:
    write_text(tmp_path / "text.jsonl", PER_GENRE)
    first, made = run(tmp_path)
    assert first.returncode == 0, first.stderr[-3000:]
    assert made == ALL
    assert "Promoted: it is the channel's first champion." in first.stdout
    assert (tmp_path / "runs/demo/report.html").stat().st_size > 2000
    assert (tmp_path / "runs/demo/pointers/demo/champion.json").is_file()
    for genre in "诗词文赋":
        assert re.search(rf"^{genre} +\d+\.\d+", first.stdout, flags=re.MULTILINE)
    check_that_costs_add_up(first.stdout)
    tables = re.findall(r"^.*\bmean +\d+\.\d+ .*$", first.stderr + first.stdout, flags=re.MULTILINE)
    assert len(tables) == 1, "the table of bits comes once a run"

    second, made = run(tmp_path)
    assert second.returncode == 0 and made == [], "every key is committed"
    assert "already champion" in second.stderr and "Nothing new to judge" in second.stdout

    third, made = run(tmp_path, **{"evaluate.temperature": "0.7"})
    assert third.returncode == 0 and set(made) <= {"evaluate", "promote"} and "evaluate" in made

    write_text(tmp_path / "text.jsonl", PER_GENRE + 20)
    fourth, made = run(tmp_path)
    assert fourth.returncode == 0, fourth.stderr[-3000:]
    assert made == ALL, "everything downstream of curate"
    kinds = [name.partition("/")[0] for _, name in committed_in(fourth.stderr)]
    assert not {"evaluation_set", "tokenizer"} & set(kinds), "they are the channel's"
    assert kinds.count("evaluate") == 1, "the champion was measured on these texts before"
    assert "1 of 2 files were tokenized before" in fourth.stderr, "that of validation texts is the same"
    promoted = fourth.stdout.startswith("\nPromoted") or "\nPromoted" in fourth.stdout
    assert promoted != ("\nNot promoted" in fourth.stdout)

    compared = compared_by_kfp(tmp_path)
    assert [sorted(run) for run in compared] == [["evaluate", "promote", "train"]] * 4
    names = [set(run["promote"]) for run in compared]
    assert names[1] == names[0] and names[3] == names[2] == names[0] | {"gain_percent"}
    assert {f"bits_per_character_{g}" for g in ("mean", "shi", "ci", "wen", "fu")} < names[0]
    assert {"train_tokens_millions", "contamination_percent"} < names[0]
    assert len(names[3]) <= 16 and all(run["promote"]["train_steps"] == 6 for run in compared)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train_steps=0", "train_steps 0: expected a whole number from 1"),
        ("train.ranks=5", "train: --batch-rows 32 does not divide among --ranks 5"),
        ("evaluate.temprature=1", "options of evaluate: unknown option 'temprature'"),
        ("tran.steps=5", "options: tran.steps: no stage tran"),
        ("options=absent.txt", "options: absent.txt: no such file"),
        ("data_sources=,", "--set data_sources=,: expected a text"),
    ],
)
def test_a_stages_bad_options_are_refused_before_the_first_stage_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    setting: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = [f"--set={setting}"]
    if not setting.startswith("data_sources="):
        flags.append("--set=data_sources=text.jsonl")
    assert main(flags) == 64
    stderr = capsys.readouterr().err
    assert words in stderr and "Traceback" not in stderr
    assert not list(tmp_path.iterdir())
