"""docs/tutorials/kubeflow.md is run as it is written: each command prints what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_cluster import RealCluster
from test_readme import CLUSTER
from test_readme import commands as blocks_of_readme

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorials/kubeflow.md"
MOST_COMMANDS = 15
_END, _CHANNEL = "end of command", "tour"


def transcript(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page (`$ ` in a block), and the lines that it prints."""
    command, printed = "", list[str]()
    for line in [*text.splitlines(), "    $ "]:
        if line.startswith("    $ "):
            if command:
                yield command, printed
            command, printed = line.removeprefix("    $ "), []
        elif command.endswith("\\"):
            command = command.removesuffix("\\") + line.strip()
        elif line.startswith("    "):
            printed.append(line.strip())


def plain(line: str) -> str:
    """A line without what differs from run to run: ids, digests, numbers, times, addresses.

    Nor what differs by what the store holds: an output may be made by these commands or found.
    """
    line = re.sub(r"https?://[\w.:-]+|\b(created|configured|unchanged|made|found|adopted)$", "#", line)
    line = re.sub(r"making (\w+/\w+)$|committed (\w+/\w+) in .*|(\w+/\w+) is committed already.*", "#", line)
    line = re.sub(r"\b(?=\w*\d)[0-9a-z]{5,}(-[0-9a-z]+)*\b|\d+(\.\d+)?", "#", line)
    line = re.sub(r"#( (min|h|s|MB|kB|GB))?([ ,]*#( (min|h|s|MB|kB|GB))?)*", "#", line)
    return " ".join(line.split())


def missing(expected: list[str], printed: str) -> list[str]:
    """Expected lines that are not printed in their order; `...` stands for anything, also at a line's end.

    Several in a row that are alike but for what differs (`plain`) may be printed once.
    """
    said, gone, at, last = [plain(line) for line in printed.splitlines()], [], 0, ""
    for line in (each for each in expected if each != "..."):
        wanted, open_end = plain(line.removesuffix("...")), line.endswith("...")
        later = (
            n for n in range(at, len(said)) if said[n] == wanted or (open_end and said[n].startswith(wanted))
        )
        found = next(later, None)
        if found is not None:
            at = found + 1
        elif wanted != last:
            gone.append(line)
        last = wanted
    return gone


def test_the_page_has_few_commands_each_with_what_it_prints() -> None:
    commands = list(transcript(PAGE.read_text(encoding="utf-8")))
    assert 5 < len(commands) <= MOST_COMMANDS
    assert [command for command, printed in commands if not printed] == []


@pytest.mark.road
def test_every_command_of_the_page_prints_what_the_page_says(cluster: RealCluster, tmp_path: Path) -> None:
    commands = list(transcript(PAGE.read_text(encoding="utf-8")))
    script = tmp_path / "page.sh"
    lines = [f"{command}\necho '{_END}' $?" for command, _ in commands]
    script.write_text("exec 2>&1\n" + "\n".join(lines), encoding="utf-8")
    channel = f"{_CHANNEL}-{uuid.uuid4().hex[:8]}"
    names = {"YANMO_CHANNEL": channel, "PATH": f"{Path(sys.executable).parent}:"}
    done = subprocess.run(
        ["bash", str(script)],
        cwd=ROOT,
        env={**os.environ, **names, "PATH": names["PATH"] + os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    printed = re.split(rf"^{_END} (\d+)\n", done.stdout.replace(channel, _CHANNEL), flags=re.M)
    problems = []
    for (command, expected), said, code in zip(commands, printed[::2], printed[1::2], strict=False):
        gone = missing(expected, said)
        if gone or code != "0":
            problems.append(f"$ {command}\nexit code {code}, missing: {gone}\n{said}")
    assert not problems, "\n\n".join(problems)
    assert len(printed) // 2 == len(commands)


@pytest.mark.road
def test_every_command_of_the_readme_ends_well(cluster: RealCluster, tmp_path: Path) -> None:
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clean = "kubectl -n kubeflow delete job rerun-1; yanmo schedule delete schedules.yaml"
    script = f"trap {shlex.quote(clean)} EXIT\n" + "\n".join(blocks_of_readme(CLUSTER))
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert (
        "promote  " in done.stdout
        and "nightly: made" in done.stdout
        and "job.batch/rerun-1 created" in done.stdout
    )
