"""The README and docs/tutorials/kubeflow.md, run as they are written; the page says what a command prints."""

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
    assert 5 < len(commands) <= 15
    assert [command for command, printed in commands if not printed] == []


def test_what_is_not_printed_is_found() -> None:
    block = ["$ a \\", "    b", "made train/2a66774f3f08 in 3 s", "...", "x y..."]
    page = "".join(f"    {line}\n" for line in block) + "\ntext\n\n    $ c\n    d"
    assert list(transcript(page)) == [
        ("a b", ["made train/2a66774f3f08 in 3 s", "...", "x y..."]),
        ("c", ["d"]),
    ]
    assert missing(["made train/2a66774f3f08 in 3 s", "..."], "made train/5afabd246818 in 1 min 20 s\n") == []
    assert missing(["x y...", "d"], "x yz\nd") == []
    assert missing(["a", "b"], "b\na") == ["b"]
    assert missing(["a", "b", "c"], "a\nc") == ["b"], "what is missing hides nothing that follows"
    log = ["1 train making train/2a66774f3f08", "9 train committed train/2a66774f3f08 in 3 s", "mean 9.7"]
    assert missing(log, "5 train train/5afabd246818 is committed already; nothing to do\nmean 8.1") == []
    assert missing(log, "mean 8.1") == [log[0]]
    assert missing(["found nothing"], "found all") == ["found nothing"]


def ended(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.mark.road
def test_every_command_of_the_page_prints_what_the_page_says(cluster: RealCluster) -> None:
    commands = list(transcript(PAGE.read_text(encoding="utf-8")))
    script = "set +e; exec 2>&1\n" + "\n".join(f"{command}\necho '{_END}' $?" for command, _ in commands)
    channel = f"{_CHANNEL}-{uuid.uuid4().hex[:8]}"
    done = ended(script, ROOT, YANMO_CHANNEL=channel)
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
    clean = "kubectl -n kubeflow delete job rerun-1; yanmo schedule delete schedules.yaml"
    done = ended(f"trap {shlex.quote(clean)} EXIT\n" + "\n".join(blocks_of_readme(CLUSTER)), tmp_path)
    assert "promote  " in done.stdout and "nightly: made" in done.stdout
    assert "job.batch/rerun-1 created" in done.stdout
