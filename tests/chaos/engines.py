"""The table engine x workers x kill: curate, balance and tokenize, each run's digests beside one process's.

    PYTHONPATH=tests:components python -m chaos.engines OUT.jsonl [RUNS]

A run in which a worker or a node is killed goes on (on Ray), or is asked again after its 75 (here). One line
for each run; the last says how many were equal.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from processes import members
from servers.ray import ROOT, RayCluster

ENGINES = [("local", 1), ("local", 2), ("local", 4), ("ray", 1), ("ray", 2)]
KILLS = {"local": ["nothing", "worker", "all"], "ray": ["nothing", "worker", "node"]}
MOST_RUNS = 45
_TRIES = 20
_KILLS_OF_A_STAGE = 2
_WAIT_SECONDS = (0.4, 2.4)
"""Before a kill; a stage takes one to four seconds."""


def main() -> None:
    """Run them in turn, and print a line for each."""
    out, most = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MOST_RUNS
    rows = itertools.cycle(
        (e, w, k) for e, w in ENGINES for k in KILLS[e] if (e, k) != ("local", "worker") or w > 1
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, out.open("w", encoding="utf-8") as file:
        place = Path(folder)
        source = sources(place)
        expected = run(place / "expected", source, environment(), ["--engine=local", "--workers=1"], None, [])
        equal = 0
        for number, (engine, workers, kill) in enumerate(itertools.islice(rows, most)):
            began = time.monotonic()
            kills: list[str] = []
            found = one(place / f"{number}", source, engine, workers, kill, kills)
            equal += found == expected
            row = {"run": number, "engine": engine, "workers": workers, "kill": kill, "killed": kills}
            row |= {"seconds": round(time.monotonic() - began, 1), "equal": found == expected}
            row |= {"documents": found.get("curate", "")[:16], "tokens": found.get("tokenize", "")[:16]}
            for each in (json.dumps(row), ""):
                file.write(f"{each}\n" if each else "")
            file.flush()
            print(json.dumps(row), flush=True)
            shutil.rmtree(place / f"{number}", ignore_errors=True)
        file.write(json.dumps({"runs": number + 1, "equal": equal}) + "\n")
    sys.exit(equal != number + 1)


def sources(place: Path) -> Path:
    """Text of 3 MB: lines in ranges, blocks, and a packed file."""
    import zstandard

    with (ROOT / "corpus" / "small.jsonl.zst").open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed).read().split(b"\n")
    folder = place / "sources"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\n".join(lines[:3500]))
    (folder / "b.jsonl.zst").write_bytes(zstandard.compress(b"\n".join(lines[4000:5000])))
    (folder / "c.txt").write_text("\n\n".join(json.loads(line)["text"] for line in lines[12000:14000]))
    return folder


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "components")}


def one(place: Path, source: Path, engine: str, workers: int, kill: str, kills: list[str]) -> dict[str, str]:
    """Digests of one run."""
    if engine == "local":
        victims: Callable[[int], Iterator[int]] | None = (
            None
            if kill == "nothing"
            else (lambda stage: iter([*_children(stage)] if kill == "worker" else [stage]))
        )
        flags = ["--engine=local", f"--workers={workers}"]
        return run(place, source, environment(), flags, victims, kills)
    place.mkdir()
    with RayCluster(place, workers) as nodes:
        spare = nodes.add_node() if kill != "nothing" else 0
        victims = (lambda stage: iter(nodes.workers(spare))) if kill == "worker" else None
        if kill == "node":
            victims = lambda stage: iter([-spare] if nodes.workers(spare) and not kills else [])  # noqa: E731
        return run(place / "store", source, nodes.environment, ["--engine=ray"], victims, kills, nodes)


def _children(stage: int) -> list[int]:
    """Its fork server's children."""
    parents = members(stage)
    return [pid for pid, parent in parents.items() if parent != stage and parents.get(parent) == stage]


def run(
    store: Path,
    source: Path,
    variables: dict[str, str],
    flags: list[str],
    victims: Callable[[int], Iterator[int]] | None,
    kills: list[str],
    nodes: RayCluster | None = None,
) -> dict[str, str]:
    """The stages until they are done; digests by stage and key."""
    few = ["--vocab-size=2048", "--agreement-sentences=100"]
    cut = ["--batch-bytes=65536", "--shard-characters=100000", "--default-genre=文"]
    shards = ["--shard-characters=100000"]
    for stage, own in (("curate", [f"--sources={source}", *cut]), ("balance", shards), ("tokenize", few)):
        command = [
            sys.executable,
            "-m",
            f"yanmo.{stage}",
            f"--store={store}",
            "--metrics-port=-1",
            *own,
            *flags,
        ]
        for _ in range(_TRIES):
            process = subprocess.Popen(
                command, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            at = time.monotonic() + random.uniform(*_WAIT_SECONDS)
            while process.poll() is None:
                if victims and time.monotonic() > at and kills.count(stage) < _KILLS_OF_A_STAGE:
                    for victim in itertools.islice(victims(process.pid), 1):
                        with suppress(ProcessLookupError):
                            if victim < 0 and nodes:
                                nodes.kill_node(-victim)
                            else:
                                os.kill(victim, signal.SIGKILL)
                            kills.append(stage)
                            at = time.monotonic() + random.uniform(*_WAIT_SECONDS)
                time.sleep(0.02)
            said = process.communicate()[1]
            if process.returncode == 0:
                break
            if process.returncode not in (75, -signal.SIGKILL):
                raise RuntimeError(f"{command} ended with {process.returncode}: {said[-2000:]}")
        else:
            raise RuntimeError(f"{command} did not end well in {_TRIES} tries: {said[-2000:]}")
    found = {}
    for manifest in store.glob("cas/*/*/MANIFEST.json"):
        value = json.loads(manifest.read_text(encoding="utf-8"))
        found[f"{value['stage']}/{value['key']}"] = value["content_digest"]
        found[value["stage"]] = value["content_digest"] if value["stage"] in ("curate", "tokenize") else ""
    return found


if __name__ == "__main__":
    main()
