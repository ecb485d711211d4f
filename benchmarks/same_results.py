"""Whether two commits give the same results, byte for byte: the demo, a chat run and a run on S3.

    python benchmarks/same_results.py COMMIT [OTHER] --out FOLDER [--only demo,chat,s3] [--steps 40]

Each commit gets a worktree below FOLDER and runs everything in a store of its own; OTHER is HEAD where it is
not given. Then every file of the stores is compared (same_results_files.py): texts, tokens, weights, bits per
document, verdict, champion, records, keys. Prints a table and exits with 1 if anything differs in a row that
`--may-differ` does not name. A finished side stays in FOLDER/<commit> and is used again, so that one baseline
serves many comparisons. The same commit twice shows that equal code gives equal bytes here.

Times, names, machines and drawn numbers are left out by name (LEFT_OUT and LEFT_OUT_FIELDS of
same_results_files.py); nothing else is passed over.

Where pyproject.toml and constraints/ are those of this checkout, this Python runs the other commit's code;
else `make install` makes the commit's own environment. S3 is Ceph's gateway from Debian's packages
(tests/servers); where it is not installed that run is left out, with the reason, and the exit code is 1 if
--only asked for it. The demo is `make demo`; --demo-steps shortens it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import zstandard  # noqa: E402
from same_results_files import LEFT_OUT_FIELDS, Row, Store, compare  # noqa: E402
from servers import s3  # noqa: E402

DEMO_TEXTS = ROOT / "corpus" / "small.jsonl.zst"
SHAPE = ("--layers", "2", "--width", "64", "--heads", "2", "--kv-heads", "1", "--head-width", "32",
         "--feed-forward", "128")  # fmt: skip

WARMUP = 30
"""Given, so that commits with another rule for short trainings do the same."""
CHAT_TEXT = ("--near-duplicate-similarity", "0", "--filter-sets", "chat=none",
             "--test-characters", "8000", "--valid-characters", "4000")  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One commit, its code and the folder that keeps what it made."""

    commit: str
    folder: Path
    python: Path
    code: Path

    @property
    def has_line(self) -> bool:
        """Whether its form has one line of options, and other names than before."""
        return "data_sources:" in (self.code / "pipelines/compiled/language_model.yaml").read_text()

    @property
    def fields(self) -> tuple[str, str]:
        """Its form's names of sources and quotas."""
        return ("data_sources", "data_quotas") if self.has_line else ("curate_sources", "balance_quotas")

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which `yanmo` is this commit's."""
        roots = f"{self.code / 'components'}{os.pathsep}{self.code / 'pipelines'}"
        ours = {n: v for n, v in os.environ.items() if not n.startswith(("YANMO_", "AWS_"))}
        return ours | {"PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Settings:
    """How long the runs are: sides of other settings are not compared."""

    steps: int
    demo_steps: int
    texts: int


def main() -> int:
    """Run what is not there yet, compare, print; returns the exit code."""
    given = _arguments()
    settings = Settings(given.steps, given.demo_steps, given.texts)
    kinds = given.only.split(",") if given.only else [*RUNS]
    absent = s3.absent() if "s3" in kinds else ""
    if absent:
        print(f"s3 is left out: {absent}")
        kinds.remove("s3")
    first, second = _commit(given.commit), _commit(given.other)
    folders = [
        given.out / first[:12],
        given.out / (f"{second[:12]}-again" if second == first else second[:12]),
    ]
    failed = bool(absent and given.only)
    for commit, folder in zip((first, second), folders, strict=True):
        if not (given.compare_only or all(_is_finished(folder / kind, settings) for kind in kinds)):
            side = _prepared(commit, folder.absolute())
            for kind in kinds:
                _run(side, kind, settings)
    for kind in kinds:
        failed |= _show(kind, folders, settings, set(given.may_differ))
    print("\nleft out of records: " + ", ".join(sorted(LEFT_OUT_FIELDS)))
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("commit", help="A: the commit whose results are taken as right")
    parser.add_argument("other", nargs="?", default="HEAD", help="B: the commit to compare (default: HEAD)")
    parser.add_argument("--out", type=Path, required=True, help="folder for worktrees and results")
    parser.add_argument("--only", default="", help=f"some of {','.join(RUNS)} (default: all)")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps of chat and S3 (default: 40)")
    parser.add_argument(
        "--demo-steps", type=int, default=0, help="of the demo; 0 is its own number (default: 0)"
    )
    parser.add_argument("--texts", type=int, default=1500, help="texts of chat and S3 (default: 1500)")
    parser.add_argument("--may-differ", action="append", default=[], metavar="ROW",
                        help="row that does not count, such as keys; may be given many times")  # fmt: skip
    parser.add_argument("--compare-only", action="store_true", help="run nothing; compare what is there")
    return parser.parse_args()


def _commit(name: str) -> str:
    return _git("rev-parse", "--verify", f"{name}^{{commit}}")


def _git(*words: str) -> str:
    ended = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"git {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def _prepared(commit: str, folder: Path) -> Side:
    """The commit's code in a worktree, and a Python that can run it."""
    code = folder / "code"
    if not code.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(code), commit)
    if _git("diff", "--name-only", commit, "--", "pyproject.toml", "constraints"):
        subprocess.run(["make", "-C", str(code), "install"], check=True)
        return Side(commit, folder, code / ".venv" / "bin" / "python", code)
    side = Side(commit, folder, Path(sys.executable), code)
    ask = [sys.executable, "-c", "import yanmo, yanmo_pipelines as p; print(yanmo.__file__, p.__file__)"]
    found = subprocess.run(
        ask, env=side.environment, cwd=folder, capture_output=True, text=True, check=True
    ).stdout
    if found.count(str(code)) != 2:
        sys.exit(f"expected {commit[:12]}'s code from {code}, found {found}")
    return side


def _is_finished(folder: Path, settings: Settings) -> bool:
    done = folder / "side.json"
    return done.is_file() and json.loads(done.read_bytes())["settings"] == vars(settings)


def _run(side: Side, kind: str, settings: Settings) -> None:
    """Make one kind's store of one side, unless it is there; it gets its name when it is whole."""
    folder = side.folder / kind
    if _is_finished(folder, settings):
        return
    if folder.exists():
        sys.exit(f"{folder} was made with other settings (side.json): give those, or another --out")
    work = side.folder / f"{kind}.part"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    began = time.monotonic()
    print(f"{side.commit[:12]} {kind}: running; log in {work}/log.txt", flush=True)
    RUNS[kind](side, work, settings)
    said = {"commit": side.commit, "settings": vars(settings), "seconds": round(time.monotonic() - began, 1)}
    (work / "side.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    work.rename(folder)


def _call(side: Side, work: Path, command: list[str], **variables: str) -> None:
    """Run a command of the side's code; ends this program where it fails."""
    with (work / "log.txt").open("ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        environment = side.environment | variables
        code = subprocess.run(command, cwd=side.code, env=environment, stdout=log, stderr=log).returncode
    if code:
        tail = (work / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        sys.exit(
            "\n".join([*tail, f"{side.commit[:12]}: exit code {code}; the whole log: {work / 'log.txt'}"])
        )


def _yanmo(side: Side, work: Path, *words: str, **variables: str) -> None:
    _call(side, work, [str(side.python), "-m", "yanmo.cli", *words], **variables)


def _demo(side: Side, work: Path, settings: Settings) -> None:
    """What `make demo` runs."""
    sources, quotas = side.fields
    fields = [f"{sources}=corpus/small.jsonl.zst", f"{quotas}=ci=200%,fu=200%"]
    fields += [f"train_steps={settings.demo_steps}"] if settings.demo_steps else []
    form = [word for field in fields for word in ("--set", field)]
    _yanmo(side, work, "run", "--store", str(work / "store"), "--channel", "demo", *form)


def _chat(side: Side, work: Path, settings: Settings) -> None:
    """docs/chat.md: texts and chats made from them, learned together, asked, promoted; twice, so that the
    second challenger meets a champion."""
    texts, chats = _texts(work, settings.texts), work / "chats.jsonl"
    with chats.open("wb") as file:
        file.write(_chats(settings.texts))
    same = ("--store", str(work / "store"), "--channel", "chat", "--inputs", "latest", "--metrics-port", "-1")
    _yanmo(side, work, "curate", *same, "--sources", f"{texts},{chats}", *CHAT_TEXT)
    _yanmo(side, work, "balance", *same)
    _yanmo(side, work, "tokenize", *same, "--vocab-size", "3000")
    for seed in ("0", "1"):
        _yanmo(side, work, "train", *same, *SHAPE, "--context", "128", "--batch-rows", "8", "--ranks", "2",
               "--threads", "1", "--steps", str(settings.steps), "--warmup-steps", str(WARMUP),
               "--seed", seed)  # fmt: skip
        _yanmo(side, work, "evaluate", *same, "--tasks", "chat", "--task-documents", "4", "--samples", "2")
        _yanmo(side, work, "promote", *same)


def _on_s3(side: Side, work: Path, settings: Settings) -> None:
    """The demo's pipeline on a real S3 server; the bucket is copied to a folder afterwards."""
    server = s3.borrow(f"same-{os.getpid()}")
    place = server.new_bucket()
    scratch = {"YANMO_SCRATCH": str(work / "scratch")}
    form = {side.fields[0]: _texts(work, settings.texts), "train_steps": settings.steps}
    form |= {"train.warmup_steps": WARMUP} if side.has_line else {"train_config": f"warmup_steps: {WARMUP}"}
    _yanmo(side, work, "run", "--store", f"s3://{place}/store", "--channel", "demo",
           *(word for name, value in form.items() for word in ("--set", f"{name}={value}")),
           **server.environment(), **scratch)  # fmt: skip
    _copy_down(server, place, work / "store")
    server.remove_bucket(place)
    shutil.rmtree(work / "scratch")


def _copy_down(server: s3.S3Server, place: str, folder: Path) -> None:
    """Every object below place/store, as files."""
    bucket, _, prefix = f"{place}/store/".partition("/")
    client = server.client()
    for entry in client.list_objects(bucket_name=bucket, prefix=prefix, recursive=True):
        target = folder / entry.object_name.removeprefix(prefix)
        client.fget_object(bucket_name=bucket, object_name=entry.object_name, file_path=str(target))


def _texts(work: Path, count: int) -> Path:
    """So many of the bundled texts, spread over all of them."""
    path = work / "texts.jsonl"
    with zstandard.open(DEMO_TEXTS, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:: max(1, len(lines) // count)][:count]))
    return path


def _chats(count: int) -> bytes:
    """So many of the bundled chats, spread over all of them."""
    with zstandard.open(ROOT / "corpus" / "chats.jsonl.zst", "rb") as file:
        lines = file.read().splitlines(keepends=True)
    return b"".join(lines[:: max(1, len(lines) // count)][:count])


RUNS: dict[str, Callable[[Side, Path, Settings], None]] = {"demo": _demo, "chat": _chat, "s3": _on_s3}


def _show(kind: str, folders: list[Path], settings: Settings, may_differ: set[str]) -> bool:
    """Print the table of one kind; whether anything differs that may not."""
    lacking = [str(f / kind) for f in folders if not _is_finished(f / kind, settings)]
    if lacking:
        print(f"\n{kind}: nothing finished with {settings} in {', '.join(lacking)}")
        return True
    stores = [Store(folder / kind / "store") for folder in folders]
    rows = compare(*stores) | {"inputs": _inputs([f / kind for f in folders])}
    print(f"\n## {kind}: A {folders[0].name}, B {folders[1].name}\n")
    print("| what | files | | first difference |\n|---|---:|---|---|")
    failed = False
    for name, row in rows.items():
        passed = not row.differences or name in may_differ
        failed |= not passed
        word = "equal" if not row.differences else f"{len(row.differences)} differ"
        also = " (may differ)" if row.differences and passed else ""
        print(f"| {name} | {row.compared} | {word}{also} | {next(iter(row.differences), '')} |")
    for pattern in sorted({*stores[0].left_out, *stores[1].left_out}):
        print(f"left out: {pattern} ({', '.join(str(s.left_out.get(pattern, 0)) for s in stores)} files)")
    details = folders[1] / kind / f"differences-from-{folders[0].name}.txt"
    details.write_text("".join(f"{n}\t{d}\n" for n, row in rows.items() for d in row.differences), "utf-8")
    print(f"all differences: {details}" if failed else "nothing differs", flush=True)
    return failed


def _inputs(folders: list[Path]) -> Row:
    """What both sides read."""
    row = Row()
    for name in ("texts.jsonl", "chats.jsonl"):
        contents = [f.joinpath(name).read_bytes() for f in folders if f.joinpath(name).is_file()]
        row.compared += bool(contents)
        if contents and (len(contents) == 1 or contents[0] != contents[1]):
            row.differences.append(f"{name}: the two sides read other texts")
    return row


if __name__ == "__main__":
    sys.exit(main())
