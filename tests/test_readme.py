"""Every block of code in README.md is run, or is what such a block prints, or lists files that it makes.

The blocks for a laptop go through a shell in their order, in a folder of their own; those for a cluster meet
a server that answers as one, and a real cluster in tests/cluster/test_page.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard
from manifests.rendered import named
from pipelines.cluster.schedules import recurring_kfp
from user_pages import ROOT

COMMAND = re.compile(r"(make|yanmo|\S*/yanmo|kubectl|export|echo|\.) ")
CLUSTER = "In Kubeflow"
NUMBER = re.compile(r"\d+\.\d+")
MOST_BITS_APART = 0.05


def blocks(section: str = "") -> list[str]:
    """The blocks of code of README.md, or of one of its sections."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.split(r"^## ", text.partition(f"## {section}\n")[2], flags=re.M)[0] if section else text
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", text, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def commands(section: str = "") -> list[str]:
    return [block for block in blocks(section) if COMMAND.match(block)]


def shell(script: str, folder: Path, variables: Mapping[str, str]) -> str:
    """What a script prints, whose every command ends well."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def is_far(line: str, printed: list[str]) -> bool:
    """Whether no printed line has the same words and nearly the same figures; a poem may be any."""
    figures = [float(figure) for figure in NUMBER.findall(line)]
    alike = (said for said in printed if NUMBER.sub("#", said).split() == NUMBER.sub("#", line).split())
    near = (
        all(
            abs(a - b) < MOST_BITS_APART
            for a, b in zip(map(float, NUMBER.findall(said)), figures, strict=True)
        )
        for said in alike
    )
    return bool(figures) and not any(near)


def test_every_block_is_run_or_is_an_output_or_a_list_of_files() -> None:
    others = [block.split()[0] for block in blocks() if not COMMAND.match(block)]
    assert others == ["genre", "春眠不觉晓风轻，春亦莫向黄昏夜。", "runs/demo/report.html"]
    assert len(commands()) == 6 and len(commands(CLUSTER)) == 3


@pytest.mark.road
@pytest.mark.process
def test_the_commands_for_a_laptop_print_what_readme_shows(tmp_path: Path) -> None:
    for path in ("Makefile", "components", "pipelines", "constraints", "corpus", "install", "pyproject.toml"):
        (tmp_path / path).symlink_to(ROOT / path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with zstandard.open(ROOT / "corpus/small.jsonl.zst", "rt", encoding="utf-8") as lines:
        poems = [text["text"] for text in map(json.loads, lines) if text["genre"] == "诗"][:3000]
    (tmp_path / "my poems.txt").write_text("\n\n".join(poems), encoding="utf-8")
    refused = dict.fromkeys(
        ("http_proxy", "https_proxy"), "http://127.0.0.1:9"
    )  # installed, no network is needed
    laptop = [block for block in commands() if block not in commands(CLUSTER)]
    printed = shell("\n".join(laptop), tmp_path, refused).splitlines()
    shown = [line for block in blocks("Try it") if not COMMAND.match(block) for line in block.splitlines()]
    missed = [line for line in shown if line not in (*printed, "...")]
    if any(NUMBER.search(line) for line in missed):  # another kind of processor: near figures, other poems
        missed = [line for line in missed if is_far(line, printed)]
    assert missed == []
    for line in blocks("Where things lie")[0].splitlines():
        place = re.sub(r"<\w+>|\.\.\.", "*", line.split()[0])
        assert list(tmp_path.glob(place)), place


def test_the_schedule_is_made_from_the_file(tmp_path: Path) -> None:
    kfp = recurring_kfp.RecurringKfp()
    with recurring_kfp.serving(kfp) as address:
        printed = shell(commands(CLUSTER)[1], tmp_path, {"KFP_ENDPOINT": address, "KUBECONFIG": "none"})
    (run,) = kfp.runs.values()
    assert printed.startswith("nightly: made") and "21:00 +0800" in printed
    assert run["status"] == "ENABLED" and run["trigger"]["cron_schedule"]["cron"] == "0 0 13 * * *"
    assert "train.night=21:00-08:00" in run["runtime_config"]["parameters"]["options"]


def test_the_stage_that_runs_again_has_its_template() -> None:
    """What kubectl does with it: tests/cluster."""
    create, follow = commands(CLUSTER)[2].splitlines()
    job, template = re.findall(r"job ([\w-]+) --from=cronjob/([\w-]+)", create)[0]
    assert template in named("small", "CronJob") and f"job/{job} " in follow
