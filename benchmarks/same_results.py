"""Whether two commits give the same results, byte for byte: `make demo`, and the chat model from it.

    python benchmarks/same_results.py COMMIT [OTHER] --out FOLDER [--steps 40]

Each commit gets a worktree below FOLDER and runs everything in a store of its own; OTHER is HEAD where it is
not given. Then every file of the stores is compared, unless a line of `LEFT_OUT` names it: texts, tokens,
weights, bits per document, verdict, champion, records, keys. Content is compared byte for byte. Records
(JSON, YAML, metrics) hold times beside figures: they are compared without the fields of `LEFT_OUT_FIELDS`.
An unknown file or field is compared, so what is added later counts until it is named. Keys, attempts and the
URIs that hold them are replaced before comparing: an output is called by its stage and its place among the
outputs of that stage (`train`, `evaluate#2`). Keys are a row of their own.

Prints a table and exits with 1 if anything differs in a row that `--may-differ` does not name. A finished
side stays in FOLDER/<commit> and is used again. The same commit twice shows that equal code gives equal bytes
here. Where pyproject.toml and constraints/ are those of this checkout, this Python runs the other commit's
code; else `make install` makes the commit's own environment.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DEMO = ("data_sources=corpus/small.jsonl.zst", "data_quotas=ci=200%,fu=200%", "train.threads=2")
CHAT = ("model_start=demo/champion", "evaluate.budget_documents=60", "evaluate.task_documents=25",
        "evaluate.samples=8", "train.threads=2")  # fmt: skip
"""What `make demo` and `make demo-chat` set."""

LEFT_OUT = {
    ".locks/*": "names of locks",
    "kfp/*": "KFP's own files: references and a log with times",
    "nights/*": "records and pages of runs, by their ids, with times; verdicts are compared",
    "pointers/*/runs/*": "runs, by their ids",
    "probes/*": "what was asked of an S3 server",
    "report.html": "the page of the last verdict, copied",
    "cas/*/report.html": "pages with times; their figures are in report.json, which is compared",
    "runs/*/LEASE.json": "times and process ids",
    "runs/*/INPUTS.json": "what the manifests' inputs say, which are compared",
    "runs/train/unfinished/*.json": "what is unfinished, with a time",
    "runs/train/auto/*.json": "a time and a run's id; the options are in the manifest",
}
"""Pattern of a file's name in the store -> why it is not compared."""
LEFT_OUT_FIELDS = {
    **dict.fromkeys(("created_at", "made_at", "champion_since"), "times"),
    **dict.fromkeys(
        ("seconds", "cpu_seconds", "seconds_left", "phase_seconds", "between_seconds", "tokens_per_second"),
        "speed",
    ),
    **dict.fromkeys(("samples_per_second", "flops_per_second", "mfu"), "speed"),
    **dict.fromkeys(("memory_bytes", "memory_peak_bytes"), "memory of a process"),
    **dict.fromkeys(("made_by", "run_id", "uri", "store"), "commit, machine, run, folder"),
    **dict.fromkeys(
        ("attempt", "sealed", "manifest_sha256"), "drawn at random, or sha256 of something with times"
    ),
    **dict.fromkeys(("key", "manifest_uri"), "compared as `keys`"),
    "training.median_tokens_per_second": "speed",
    "command": "holds sha256 of manifests, and folders; its options are in the manifests, which are compared",
    "stages.bytes": "size of an output, with the times in its records",
}
"""Field of a JSON or YAML record, anywhere in it or in the field before the point -> why it is left out."""
_PLACE = re.compile(r"(?:file://)?[^\s'\",]*(?:\.part|/code)(?=/)")
"""The folder or bucket of a run, in commands and names of sources."""
LEFT_OUT_METRICS = (
    r"yanmo_run_info|yanmo_\w+_(created|cpu_seconds|start_time_seconds|duration_seconds|seconds_left)"
    r"|yanmo_(store|stage|gpu)_\w+|yanmo_\w+_(seconds|seconds_total|age_seconds)|yanmo_train_interval_seconds"
    r"|yanmo_train_(memory_bytes|memory_peak_bytes|tokens_per_second|samples_per_second|flops_per_second|mfu)"
    r"|yanmo_train_(rank|checkpoint)_\w+|yanmo_train_ranks\w*"
)
"""Metrics that are times, speeds and memory, or name the run: a regular expression."""
ROWS = {
    "documents": ("curate", "curate_*"),
    "evaluation set": ("evaluation_set",),
    "balance's choice": ("balance",),
    "tokenizer": ("tokenizer",),
    "tokens": ("tokenize", "token_shard"),
    "weights": ("train",),
    "bits per document": ("evaluate",),
    "baselines, writing": ("baselines", "writing", "contamination"),
    "verdict": ("promote",),
}
"""Row of the table -> the stages whose content it counts."""


@dataclass
class Row:
    """One line of the table."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)


class Store:
    """A store in a folder, as it was left by a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        read = [json.loads(path.read_bytes()) for path in root.glob("cas/*/*/MANIFEST.json")]
        self.manifests = sorted(read, key=lambda m: (m["stage"], m["created_at"], m["content_digest"]))
        self.names: dict[str, str] = {}
        """`<stage>/<key>` -> name of the output."""


def compare(a: Store, b: Store) -> dict[str, Row]:
    """Every row of the table."""
    _name(a, b)
    ours, theirs = dict(_items(a)), dict(_items(b))
    rows: dict[str, Row] = {}
    for name in sorted(ours.keys() | theirs.keys()):
        row = rows.setdefault((ours.get(name) or theirs[name])[0], Row())
        row.compared += 1
        if name not in ours or name not in theirs:
            row.differences.append(f"{name}: only in {'A' if name in ours else 'B'}")
        elif said := difference(ours[name][1], theirs[name][1]):
            row.differences.append(f"{name}: {said}")
    return rows


def _name(a: Store, b: Store) -> None:
    """Give the outputs of both stores names that belong together: equal content first, of
    that equal keys, then by time."""
    for stage in sorted({m["stage"] for m in (*a.manifests, *b.manifests)}):
        ours, theirs = ([m for m in s.manifests if m["stage"] == stage] for s in (a, b))
        pairs = []
        for one in list(ours):
            alike = [m for m in theirs if m["content_digest"] == one["content_digest"]]
            if same := next((m for m in alike if m["key"] == one["key"]), alike[0] if alike else None):
                pairs.append((one, same))
                ours.remove(one)
                theirs.remove(same)
        for number, both in enumerate([*pairs, *itertools.zip_longest(ours, theirs)], 1):
            for store, manifest in zip((a, b), both, strict=True):
                if manifest:
                    store.names[f"{stage}/{manifest['key']}"] = stage if number == 1 else f"{stage}#{number}"


def _items(store: Store) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Everything of a store that is compared: its name, the row that it counts in, and a value; a `Path` is
    compared as bytes, anything else by ==."""
    named: set[str] = set()
    sources = []
    for manifest in store.manifests:
        yield from _output(store, manifest, named)
    for path in sorted(p for p in store.root.rglob("*") if p.is_file()):
        name = path.relative_to(store.root).as_posix()
        if name in named or any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT):
            continue
        if name.startswith("sources/"):  # called by the sha256 of a URI with this folder in it
            found = json.loads(path.read_bytes())
            found.pop("version")  # the file's time
            sources.append(fields(found, store))
        elif name.startswith("pointers/") and name.endswith(".json"):
            yield name, ("champion, pointers", fields(json.loads(path.read_bytes()), store))
        else:
            yield _plain(name, store), ("other files", path)
    yield "sources", ("other files", sorted(sources, key=repr))


def _output(store: Store, manifest: dict[str, Any], named: set[str]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """The files of one output, its manifest and its key."""
    stage = manifest["stage"]
    folder, output = f"cas/{stage}/{manifest['key']}", store.names[f"{stage}/{manifest['key']}"]
    row = next((r for r, stages in ROWS.items() if any(fnmatch.fnmatchcase(stage, s) for s in stages)), stage)
    named.add(f"{folder}/MANIFEST.json")
    yield f"{output} key", ("keys", manifest["key"])
    whole = fields(manifest, store)
    whole["files"] = [  # records differ by their times: their bytes are not compared, but that they are there
        entry if entry["role"] == "content" else {"path": entry["path"], "role": entry["role"]}
        for entry in manifest["files"]
    ]
    yield f"{output} manifest", ("manifests", whole)
    for entry in manifest["files"]:
        name = f"{folder}/{manifest['attempt']}/{entry['path']}"
        named.add(name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT):
            continue
        path = store.root / name
        content = entry["role"] == "content"
        value = path if content or not path.is_file() else record(path, store)
        yield f"{output}/{entry['path']}", (row if content else "records", value)


def _plain(text: str, store: Store) -> str:
    """`text` with the output's name for `<stage>/<key>`, and without the folder of the run."""
    if "/" not in text:  # as most texts: the two expressions take as long as all else of a comparison
        return text
    named = re.sub(r"(\w+/[0-9a-f]{64})(?![0-9a-f])", lambda m: store.names.get(m[1], m[1]), text)
    return _PLACE.sub("RUN", named)


def fields(value: Any, store: Store, within: str = "") -> Any:
    """`value` without the fields of `LEFT_OUT_FIELDS`."""
    if isinstance(value, dict):
        return {
            name: fields(inner, store, name)
            for name, inner in value.items()
            if name not in LEFT_OUT_FIELDS and f"{within}.{name}" not in LEFT_OUT_FIELDS
        }
    if isinstance(value, list):
        return [fields(inner, store, within) for inner in value]
    return _plain(value, store) if isinstance(value, str) else value


def record(path: Path, store: Store) -> Any:
    """A record without what holds times, machines and folders; a `Path` where it is compared as bytes."""
    text = path.read_bytes()
    if path.suffix == ".json":
        return fields(json.loads(text), store)
    if path.suffix == ".jsonl":
        return [fields(json.loads(line), store) for line in text.splitlines()]
    if path.suffix in (".yaml", ".yml"):
        return fields(_yaml(text), store)
    if path.suffix == ".prom":
        told = re.compile(rf"(?:# (?:HELP|TYPE) )?(?:{LEFT_OUT_METRICS})(?![\w])")
        return [line for line in text.decode().splitlines() if not told.match(line)]
    return path


@functools.lru_cache(maxsize=64)
def _yaml(text: bytes) -> Any:
    """The value of a YAML file, read once: both stores hold it, and reading it is most of a comparison."""
    return yaml.safe_load(text)


_NOTHING = object()


def difference(a: Any, b: Any) -> str:
    """The first difference in words; empty where there is none."""
    if not (isinstance(a, Path) and isinstance(b, Path)):
        ours, theirs = _values(a), _values(b)
        both = {**ours, **theirs}
        at = next((x for x in both if ours.get(x, _NOTHING) != theirs.get(x, _NOTHING)), None)
        return "" if at is None else f"{at}: {ours.get(at)!r:.60} against {theirs.get(at)!r:.60}"
    if not a.is_file() or not b.is_file():
        return f"missing in {'B' if a.is_file() else 'A'}"
    one, other = a.read_bytes(), b.read_bytes()
    if one == other:
        return ""
    at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return f"byte {min(len(one), len(other)) if at is None else at} of {len(one)} and {len(other)}"


def _values(value: Any, where: str = "") -> dict[str, Any]:
    """Place -> value, of all that a JSON value holds."""
    if isinstance(value, dict) and value:
        parts = [_values(inner, f"{where}.{name}") for name, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [_values(inner, f"{where}[{number}]") for number, inner in enumerate(value)]
    else:
        return {where: value}
    return {place: inner for part in parts for place, inner in part.items()}


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
    rows = compare(*(Store(folder / "store") for folder in folders))
    print(f"A {folders[0].name}, B {folders[1].name}\n")
    print("| what | files | | first difference |\n|---|---:|---|---|")
    for name, row in rows.items():
        said = f"{len(row.differences)} differ" if row.differences else "equal"
        also = " (may differ)" if row.differences and name in given.may_differ else ""
        print(f"| {name} | {row.compared} | {said}{also} | {next(iter(row.differences), '')} |")
    details = folders[1] / f"differences-from-{folders[0].name}.txt"
    details.write_text("".join(f"{n}\t{d}\n" for n, row in rows.items() for d in row.differences), "utf-8")
    print(f"\nall differences: {details}; left out of records: " + ", ".join(sorted(LEFT_OUT_FIELDS)))
    return int(any(row.differences for name, row in rows.items() if name not in given.may_differ))


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
    ask = [sys.executable, "-c", "import yanmo, yanmo_pipelines as p; print(yanmo.__file__, p.__file__)"]
    found = subprocess.run(
        ask, env=_environment(code), cwd=folder, capture_output=True, text=True, check=True
    )
    if found.stdout.count(str(code)) != 2:
        sys.exit(f"expected {commit[:12]}'s code from {code}, found {found.stdout}")
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
