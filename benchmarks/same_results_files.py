"""What two stores hold, file by file: which are equal, and where the first difference lies.

Every file of both stores is compared, unless a line of `LEFT_OUT` names it. Content is compared byte for
byte. Records (JSON, YAML, metrics) hold times beside figures: they are compared without the fields of
`LEFT_OUT_FIELDS`. An unknown file or field is compared, so what is added later counts until it is named.

Keys, attempts and the URIs that hold them are replaced before comparing: an output is called by its stage and
its place among the outputs of that stage (`train`, `evaluate#2`). Keys are a row of their own.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

LEFT_OUT = {
    ".locks/*": "names of locks",
    "kfp/*": "KFP's own files: references and a log with times",
    "probes/*": "what was asked of an S3 server",
    "report.html": "the page of the last verdict, copied",
    "cas/*/report.html": "pages with times; their figures are in report.json, which is compared",
    "runs/*/LEASE.json": "times and process ids",
    "runs/*/INPUTS.json": "what the manifests' inputs say, which are compared",
    "runs/train/auto/*.json": "the machine, a time and a run's id; the options are in the manifest",
}
"""Pattern of a file's name in the store -> why it is not compared."""
LEFT_OUT_FIELDS = {
    **dict.fromkeys(("created_at", "made_at", "champion_since"), "times"),
    **dict.fromkeys(
        ("seconds", "cpu_seconds", "seconds_left", "phase_seconds", "tokens_per_second"), "speed"
    ),
    **dict.fromkeys(("samples_per_second", "flops_per_second", "mfu"), "speed"),
    **dict.fromkeys(("memory_bytes", "memory_peak_bytes"), "memory of a process"),
    **dict.fromkeys(("made_by", "run_id", "uri", "store"), "commit, machine, run, folder"),
    **dict.fromkeys(
        ("attempt", "sealed", "manifest_sha256"), "drawn at random, or sha256 of something with times"
    ),
    **dict.fromkeys(("key", "manifest_uri"), "compared as `keys`"),
    **dict.fromkeys(("training.phases", "training.median_tokens_per_second"), "speed"),
    **dict.fromkeys(("training.stalls", "training.lost_seconds"), "speed"),
    "command": "holds sha256 of manifests, and folders; its options are in the manifests, which are compared",
    "stages.bytes": "size of an output, with the times in its records",
}
"""Field of a JSON or YAML record, anywhere in it or in the field before the point -> why it is left out."""
_PLACE = re.compile(r"(?:(?:file://)?[^\s'\",]*\.part|s3://yanmo-[0-9a-f]{12})(?=/)")
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
class Item:
    """One thing to compare: a file, a part of a manifest, a pointer."""

    row: str
    value: Any
    """Comparable: a `Path` is compared as bytes, anything else by ==."""


@dataclass
class Row:
    """One line of the table."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass
class Store:
    """A store in a folder, as it was left by a run."""

    root: Path
    left_out: dict[str, int] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """`<stage>/<key>` -> name of the output."""

    def __post_init__(self) -> None:
        for path in sorted(self.root.glob("cas/*/*/MANIFEST.json")):
            manifest = json.loads(path.read_bytes())
            self.manifests.append(manifest)
        self.manifests.sort(key=lambda m: (m["stage"], m["created_at"], m["content_digest"]))


def compare(a: Store, b: Store) -> dict[str, Row]:
    """Every row of the table."""
    _name(a, b)
    ours, theirs = dict(_items(a)), dict(_items(b))
    rows: dict[str, Row] = {}
    for name in sorted(ours.keys() | theirs.keys()):
        row = rows.setdefault((ours.get(name) or theirs[name]).row, Row())
        row.compared += 1
        if name not in ours or name not in theirs:
            row.differences.append(f"{name}: only in {'A' if name in ours else 'B'}")
        elif said := difference(ours[name].value, theirs[name].value):
            row.differences.append(f"{name}: {said}")
    return rows


def _name(a: Store, b: Store) -> None:
    """Give the outputs of both stores names that belong together: equal content first, then by time."""
    for stage in sorted({m["stage"] for m in (*a.manifests, *b.manifests)}):
        ours, theirs = ([m for m in s.manifests if m["stage"] == stage] for s in (a, b))
        pairs = []
        for one in list(ours):
            same = next((m for m in theirs if m["content_digest"] == one["content_digest"]), None)
            if same:
                pairs.append((one, same))
                ours.remove(one)
                theirs.remove(same)
        for number, both in enumerate([*pairs, *itertools.zip_longest(ours, theirs)], 1):
            for store, manifest in zip((a, b), both, strict=True):
                if manifest:
                    store.names[f"{stage}/{manifest['key']}"] = stage if number == 1 else f"{stage}#{number}"


def _items(store: Store) -> Iterator[tuple[str, Item]]:
    """Everything of a store that is compared, by name."""
    named: set[str] = set()
    sources = []
    for manifest in store.manifests:
        yield from _output(store, manifest, named)
    for path in sorted(p for p in store.root.rglob("*") if p.is_file()):
        name = path.relative_to(store.root).as_posix()
        pattern = next((p for p in LEFT_OUT if fnmatch.fnmatchcase(name, p)), None)
        if pattern:
            store.left_out[pattern] = store.left_out.get(pattern, 0) + 1
        elif name in named:
            continue
        elif name.startswith("sources/"):  # called by the sha256 of a URI with this folder in it
            found = json.loads(path.read_bytes())
            found.pop("version")  # the file's time
            sources.append(fields(found, store))
        elif name.startswith("pointers/") and name.endswith(".json"):
            yield name, Item("champion, pointers", fields(json.loads(path.read_bytes()), store))
        else:
            yield _plain(name, store), Item("other files", path)
    yield "sources", Item("other files", sorted(sources, key=repr))


def _output(store: Store, manifest: dict[str, Any], named: set[str]) -> Iterator[tuple[str, Item]]:
    """The files of one output, its manifest and its key."""
    stage = manifest["stage"]
    folder, output = f"cas/{stage}/{manifest['key']}", store.names[f"{stage}/{manifest['key']}"]
    row = next((r for r, stages in ROWS.items() if any(fnmatch.fnmatchcase(stage, s) for s in stages)), stage)
    named.add(f"{folder}/MANIFEST.json")
    yield f"{output} key", Item("keys", manifest["key"])
    whole = fields(manifest, store)
    whole["files"] = [  # records differ by their times: their bytes are not compared, but that they are there
        entry if entry["role"] == "content" else {"path": entry["path"], "role": entry["role"]}
        for entry in manifest["files"]
    ]
    yield f"{output} manifest", Item("manifests", whole)
    for entry in manifest["files"]:
        name = f"{folder}/{manifest['attempt']}/{entry['path']}"
        named.add(name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in LEFT_OUT):
            continue
        path = store.root / name
        content = entry["role"] == "content"
        value = path if content or not path.is_file() else record(path, store)
        yield f"{output}/{entry['path']}", Item(row if content else "records", value)


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


def difference(a: Any, b: Any) -> str:
    """The first difference in words; empty where there is none."""
    if isinstance(a, Path) and isinstance(b, Path):
        return _files(a, b)
    return "" if a == b else "; ".join(itertools.islice(_values(a, b, ""), 1))


def _values(a: Any, b: Any, where: str) -> Iterator[str]:
    """Where two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in [*a, *(n for n in b if n not in a)]:
            if name not in a or name not in b:
                yield f"{where}.{name}: only in {'A' if name in a else 'B'}"
            else:
                yield from _values(a[name], b[name], f"{where}.{name}")
    elif isinstance(a, list) and isinstance(b, list):
        for number, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from _values(one, other, f"{where}[{number}]")
        if len(a) != len(b):
            yield f"{where}: {len(a)} against {len(b)} entries"
    elif a != b:
        yield f"{where}: {_short(a)} against {_short(b)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _files(a: Path, b: Path) -> str:
    """The first difference of two files."""
    if not a.is_file() or not b.is_file():
        return f"missing in {'B' if a.is_file() else 'A'}"
    if a.read_bytes() == b.read_bytes():
        return ""
    look: dict[str, Callable[[Path, Path], str]] = {".parquet": _parquet, ".safetensors": _tensors}
    try:
        found = look.get(a.suffix, _lines)(a, b)
    except Exception as error:  # a damaged file differs too; its bytes say where
        found = f"not readable ({error})"
    return found or f"equal rows, other bytes: {_first_byte(a, b)}"


def _parquet(a: Path, b: Path) -> str:
    """The first row and column that differ."""
    ours, theirs = (pq.read_table(path, memory_map=True) for path in (a, b))
    if not ours.schema.equals(theirs.schema, check_metadata=True):
        return f"other schema or metadata: {_first_byte(a, b)}"
    for name in ours.column_names:
        if ours[name].equals(theirs[name]):
            continue
        for number, (one, other) in enumerate(zip(ours[name], theirs[name], strict=False)):
            if one != other:
                return f"row {number}, {name}: {_short(one.as_py())} against {_short(other.as_py())}"
    return f"{len(ours)} against {len(theirs)} rows" if len(ours) != len(theirs) else ""


def _tensors(a: Path, b: Path) -> str:
    """The first tensor that differs, read without torch."""
    ours, theirs = (_header(path) for path in (a, b))
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return f"tensor {name} differs"
    return ""


def _header(path: Path) -> dict[str, Any]:
    """Tensor -> its type, shape and bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + size])
    metadata = entries.pop("__metadata__", {})
    body = data[8 + size :]
    found = {n: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for n, e in entries.items()}
    return found | {"(metadata)": metadata}


def _lines(a: Path, b: Path) -> str:
    """The first line that differs."""
    for number, (one, other) in enumerate(
        itertools.zip_longest(a.read_text("utf-8").splitlines(), b.read_text("utf-8").splitlines()), 1
    ):
        if one != other:
            return f"line {number}: {_short(one)} against {_short(other)}"
    return ""


def _first_byte(a: Path, b: Path) -> str:
    one, other = a.read_bytes(), b.read_bytes()
    at = next(
        (i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other))
    )
    return f"byte {at} of {len(one)} and {len(other)}"
