"""Whether two commits give the same results, byte for byte: `make demo`, and the chat model from it.

    python benchmarks/same_results.py COMMIT [OTHER] --out FOLDER [--steps 40]

Each commit gets a worktree below FOLDER and runs everything in a store of its own; OTHER is HEAD where it is
not given. Then the outputs of each stage are compared by their content digests, which hold the sha256 of
every text, token, weight, score and verdict; what differs is named by its file. Records beside them (metrics,
options) hold times, and are not compared. Keys are a row of their own, as they may change where no content
does.

Prints a table and exits with 1 if anything differs in a row that `--may-differ` does not name. A finished
side stays in FOLDER/<commit> and is used again. Where pyproject.toml and constraints/ are those of this
checkout, this Python runs the other commit's code; else `make install` makes the commit's own environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEMO = ("data_sources=corpus/small.jsonl.zst", "data_quotas=ci=200%,fu=200%", "train.threads=2")
CHAT = ("model_start=demo/champion", "evaluate.budget_documents=60", "evaluate.task_documents=25",
        "evaluate.samples=8", "train.threads=2")  # fmt: skip
"""What `make demo` and `make demo-chat` set."""
Rows = dict[str, list[str]]
"""Row of the table -> what differs, in words."""


def compare(a: Path, b: Path) -> Rows:
    """What differs between two stores: by stage, then keys and pointers."""
    ours, theirs = manifests(a), manifests(b)
    rows = {stage: differences(ours[stage], theirs[stage]) for stage in sorted({*ours, *theirs})}
    keys = [{f"{m['stage']}/{m['key']}" for ms in side.values() for m in ms} for side in (ours, theirs)]
    rows["keys"] = [f"{key}: only in {'A' if key in keys[0] else 'B'}" for key in sorted(keys[0] ^ keys[1])]
    one, other = pointers(a), pointers(b)
    moved = (name for name in sorted({*one, *other}) if one.get(name) != other.get(name))
    rows["pointers"] = [f"{name}: {one.get(name)} against {other.get(name)}" for name in moved]
    return rows


def manifests(store: Path) -> defaultdict[str, list[dict[str, Any]]]:
    """Stage -> its outputs, by time."""
    found = defaultdict(list)
    for manifest in (json.loads(path.read_bytes()) for path in store.glob("cas/*/*/MANIFEST.json")):
        found[manifest["stage"]].append(manifest)
    for outputs in found.values():
        outputs.sort(key=lambda m: (m["created_at"], m["content_digest"]))
    return found


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    """What is not the same in the outputs of a stage; those that are equal belong together, the others by
    time."""
    found, left = [], [list(ours), list(theirs)]
    for one in ours:
        same = next((m for m in left[1] if m["content_digest"] == one["content_digest"]), None)
        if same is not None:
            left[0].remove(one)
            left[1].remove(same)
    for one, other in zip_longest(*left):
        if one is None or other is None:
            found.append(f"an output only in {'A' if one else 'B'}: {(one or other)['key'][:12]}")
            continue
        a, b = (
            {f["path"]: (f["bytes"], f["sha256"][:12]) for f in m["files"] if f["role"] == "content"}
            | {"counts": m["counts"]}
            for m in (one, other)
        )
        found += [f"{p}: {a.get(p)} against {b.get(p)}" for p in sorted({*a, *b}) if a.get(p) != b.get(p)]
    return found


def pointers(store: Path) -> dict[str, str]:
    """Pointer of a channel -> the content that it names."""
    found = {path: json.loads(path.read_bytes()) for path in store.glob("pointers/*/*.json")}
    return {
        path.relative_to(store).as_posix(): (value.get("model") or value)["content_digest"]
        for path, value in found.items()
    }


def main() -> int:
    """Run what is not there yet, compare, print; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="A: the commit whose results are taken as right")
    parser.add_argument("other", nargs="?", default="HEAD", help="B: the commit to compare (default: HEAD)")
    parser.add_argument("--out", type=Path, required=True, help="folder for worktrees and results")
    parser.add_argument("--steps", type=int, default=0, help="of each training; 0: the recipe's (default)")
    parser.add_argument("--may-differ", action="append", default=[], metavar="ROW",
                        help="row that does not count, such as keys; may be given many times")  # fmt: skip
    given = parser.parse_args()
    first, second = (_git("rev-parse", "--verify", f"{x}^{{commit}}") for x in (given.commit, given.other))
    again = "-again" if first == second else ""
    folders = [given.out.absolute() / first[:12], given.out.absolute() / f"{second[:12]}{again}"]
    for commit, folder in zip((first, second), folders, strict=True):
        make(commit, folder, given.steps)
    rows = compare(*(folder / "store" for folder in folders))
    print(f"A {folders[0].name}, B {folders[1].name}\n")
    print("| what | | first difference |\n|---|---|---|")
    for name, found in rows.items():
        also = " (may differ)" if found and name in given.may_differ else ""
        print(f"| {name} | {f'{len(found)} differ' if found else 'equal'}{also} | {''.join(found[:1])} |")
    return int(any(found for name, found in rows.items() if name not in given.may_differ))


def make(commit: str, folder: Path, steps: int) -> None:
    """Make one side's store, unless it is there; it gets its name when it is whole."""
    done, work = folder / "side.json", folder / "store.part"
    if done.is_file():
        if json.loads(done.read_bytes()) != {"steps": steps}:
            sys.exit(f"{folder} was made with other steps ({done}): give those, or another --out")
        return
    python, code = _prepared(commit, folder)
    shutil.rmtree(work, ignore_errors=True)
    for channel, pipeline, fields in (("demo", "language_model", DEMO), ("chat", "chat", CHAT)):
        fields += (f"train_steps={steps}",) if steps else ()
        form = [word for setting in fields for word in ("--set", setting)]
        command = [str(python), "-m", "yanmo.cli", "run", "--pipeline", pipeline, "--channel", channel]
        command += ["--store", str(work), *form]
        print(f"{folder.name} {channel}: running; log in {folder / 'log.txt'}", flush=True)
        with (folder / "log.txt").open("ab") as log:
            ended = subprocess.run(command, cwd=code, env=_environment(code), stdout=log, stderr=log)
        if ended.returncode:
            sys.exit(f"{folder.name} {channel}: exit code {ended.returncode}; see {folder / 'log.txt'}")
    work.rename(folder / "store")
    done.write_text(json.dumps({"steps": steps}), encoding="utf-8")


def _prepared(commit: str, folder: Path) -> tuple[Path, Path]:
    """A Python that can run the commit's code, and the worktree that has it."""
    code = folder / "code"
    if not code.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(code), commit)
    if _git("diff", "--name-only", commit, "--", "pyproject.toml", "constraints"):
        subprocess.run(["make", "-C", str(code), "install"], check=True)
        return code / ".venv" / "bin" / "python", code
    return Path(sys.executable), code


def _environment(code: Path) -> dict[str, str]:
    """The environment in which `yanmo` is this commit's."""
    roots = f"{code / 'components'}{os.pathsep}{code / 'pipelines'}"
    ours = {n: v for n, v in os.environ.items() if not n.startswith(("YANMO_", "AWS_"))}
    return ours | {"PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}


def _git(*words: str) -> str:
    ended = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"git {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
