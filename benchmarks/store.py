"""Our s3 store beside boto3's transfer manager, `aws s3 cp` and pyarrow, on one server in one run.

    python benchmarks/store.py [--rounds 3] [--aws PATH] [--megabytes 1024] [--objects 2000]

Puts and gets one large file and many small ones (4 KiB). The server is the one that AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and YANMO_TEST_S3_BUCKET name, else a Ceph radosgw started here
(tests/servers). Every tool runs in a process of its own, in turn, `--rounds` times; shown are medians of wall
and CPU seconds (the client's) and the peak of its memory. Ours computes and checks a sha256 of every file;
what a peer checks is in its row, and `+sha256` adds the time that one hash of each file takes, which a peer
would need for the same promise. boto3 must be installed; `aws` is left out where there is none.

pyarrow 26 needs AWS_REQUEST_CHECKSUM_CALCULATION=when_required here: radosgw 16 refuses its trailing
checksums (411), and its `copy_files` then returns without an error and without a copy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

CHECKS = {
    "yanmo": "sha256 of each file, md5 of each part",
    "boto3": "crc32 and sha256 of each part up, nothing down",
    "aws s3 cp": "crc32 and sha256 of each part up, nothing down",
    "pyarrow": "nothing",
}
SMALL_BYTES = 4096


def main() -> None:
    """Run the pairings and print one table."""
    given = _arguments()
    if given.worker:
        print(json.dumps(_work(given.worker, Path(given.folder), given.place, given.aws)))
        return
    from servers import s3

    server = s3.borrow("benchmark")
    os.environ.update(server.environment(), YANMO_SCRATCH="")
    place = server.new_bucket()
    with tempfile.TemporaryDirectory() as folder:
        try:
            _show(_measure(given, Path(folder), server, place), given)
        finally:
            server.remove_bucket(place)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the large file, MiB")
    parser.add_argument("--objects", type=int, default=2000, help="number of small files")
    parser.add_argument("--aws", default=shutil.which("aws") or "", help="the aws command")
    for hidden in ("--worker", "--folder", "--place"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(
    given: argparse.Namespace, folder: Path, server: Any, place: str
) -> dict[tuple[str, str], list[dict[str, float]]]:
    source = folder / "source"
    _make(source / "large", 1, given.megabytes << 20)
    _make(source / "small", given.objects, SMALL_BYTES)
    tools = ["yanmo", "boto3", "pyarrow", *(["aws s3 cp"] if given.aws else [])]
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(given.rounds):
        for kind in ("large", "small"):
            for tool in tools[turn % len(tools) :] + tools[: turn % len(tools)]:
                for action in ("put", "get"):
                    one = _run(f"{tool}:{action}:{kind}", folder, f"{place}/{tool[:3]}{turn}", given.aws)
                    results.setdefault((f"{action} {kind}", tool), []).append(one)
                    print(
                        f"{turn + 1}/{given.rounds} {action} {kind} {tool}: {one['wall']:.1f} s",
                        file=sys.stderr,
                    )
                _empty(server, place)  # the tests' server holds its objects in 4 GiB of memory
    return results


def _empty(server: Any, place: str) -> None:
    from minio.deleteobjects import DeleteObject

    bucket, _, prefix = place.partition("/")
    found = server.client().list_objects(bucket_name=bucket, prefix=prefix or None, recursive=True)
    names = (DeleteObject(item.object_name) for item in found)
    list(server.client().remove_objects(bucket_name=bucket, delete_object_list=names))


def _make(folder: Path, count: int, size: int) -> None:
    folder.mkdir(parents=True)
    for n in range(count):
        with (folder / f"part-{n:05d}").open("wb") as file:
            for _ in range(0, size, 1 << 20):
                file.write(os.urandom(min(size, 1 << 20)))


def _hash_seconds(folder: Path) -> float:
    started = time.perf_counter()
    for path in folder.iterdir():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    return time.perf_counter() - started


def _run(worker: str, folder: Path, place: str, aws: str) -> dict[str, float]:
    shutil.rmtree(folder / "target", ignore_errors=True)
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    command = [
        sys.executable,
        __file__,
        "--worker",
        worker,
        "--folder",
        str(folder),
        "--place",
        place,
        "--aws",
        aws,
    ]
    env = {**os.environ, "YANMO_SCRATCH": str(folder / "scratch")}
    if worker.startswith("pyarrow"):
        env["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{worker} failed; its message is above")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _work(worker: str, folder: Path, place: str, aws: str) -> dict[str, float]:
    """One action of one tool, measured without its imports."""
    tool, action, kind = worker.split(":")
    files = sorted(path.name for path in (folder / "source" / kind).iterdir())
    target = folder / "target" / kind
    target.mkdir(parents=True, exist_ok=True)
    call = TOOLS[tool](folder, f"{place}-{kind}", kind, files, aws)[action]
    before, started = _cpu(), time.perf_counter()
    call()
    wall, cpu = time.perf_counter() - started, _cpu() - before
    hashing = 0.0 if tool == "yanmo" else _hash_seconds(folder / "source" / kind)
    if action == "get":
        _check(folder, kind, files)
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "wall": wall,
        "hashed": wall + hashing,
        "cpu": cpu,
        "peak": (max(peaks) if tool == "aws s3 cp" else peaks[0]) / 1024,
    }


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _check(folder: Path, kind: str, files: list[str]) -> None:
    for name in files:
        got = next((folder / "target" / kind).rglob(name))
        if got.stat().st_size != (folder / "source" / kind / name).stat().st_size:
            raise SystemExit(f"{name}: wrong size")


def _yanmo(folder: Path, place: str, kind: str, files: list[str], aws: str) -> dict[str, Any]:
    from yanmo.store.objects import Wanted
    from yanmo.store.opening import open_store

    bucket, _, prefix = place.partition("/")
    store = open_store(f"s3://{bucket}/{prefix}")
    listing = folder / f"{prefix}.json"

    def put() -> None:
        work = store.writable("cas/a/b/c")
        for name in files:  # where a stage would have written them
            os.link(folder / "source" / kind / name, work / name)
        written = store.publish("cas/a/b/c", files)
        listing.write_text(json.dumps([[one.bytes, one.sha256] for one in written]))

    def get() -> None:
        entries = json.loads(listing.read_text())
        wanted = [Wanted(f"cas/a/b/c/{name}", *entry) for name, entry in zip(files, entries, strict=True)]
        for path in store.fetch(wanted):
            (folder / "target" / kind / path.name).hardlink_to(path)

    return {"put": put, "get": get}


def _boto3(folder: Path, place: str, kind: str, files: list[str], aws: str) -> dict[str, Any]:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=20)
    client = boto3.client("s3", config=config)
    bucket, _, prefix = place.partition("/")

    def each(action: Any) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(action, files))

    source, target = folder / "source" / kind, folder / "target" / kind
    return {
        "put": lambda: each(lambda name: client.upload_file(str(source / name), bucket, f"{prefix}/{name}")),
        "get": lambda: each(
            lambda name: client.download_file(bucket, f"{prefix}/{name}", str(target / name))
        ),
    }


def _pyarrow(folder: Path, place: str, kind: str, files: list[str], aws: str) -> dict[str, Any]:
    from pyarrow import fs

    scheme, _, host = os.environ["AWS_ENDPOINT_URL"].partition("://")
    remote = fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=host, scheme=scheme, region=os.environ["AWS_REGION"],
    )  # fmt: skip
    local = fs.LocalFileSystem()

    def copy(source: str, target: str, source_fs: Any, target_fs: Any) -> None:
        fs.copy_files(source, target, source_fs, target_fs, chunk_size=8 << 20)

    return {
        "put": lambda: copy(str(folder / "source" / kind), place, local, remote),
        "get": lambda: copy(place, str(folder / "target" / kind), remote, local),
    }


def _aws(folder: Path, place: str, kind: str, files: list[str], aws: str) -> dict[str, Any]:
    def copy(source: str, target: str) -> None:
        subprocess.run([aws, "s3", "cp", "--recursive", "--quiet", source, target], check=True)

    source, target = str(folder / "source" / kind), str(folder / "target" / kind)
    return {"put": lambda: copy(source, f"s3://{place}"), "get": lambda: copy(f"s3://{place}", target)}


TOOLS = {"yanmo": _yanmo, "boto3": _boto3, "pyarrow": _pyarrow, "aws s3 cp": _aws}


def _show(results: dict[tuple[str, str], list[dict[str, float]]], given: argparse.Namespace) -> None:
    what = f"{given.megabytes} MiB and {given.objects} x {SMALL_BYTES} bytes"
    print(f"{given.rounds} rounds, {what}, {os.cpu_count()} cores\n")
    print(f"{'':<10}  {'tool':<10}{'wall s':>8}{'+sha256':>9}{'CPU s':>8}{'peak MB':>9}  checks")
    for what in dict.fromkeys(what for what, _ in results):
        for (_, tool), rows in ((key, rows) for key, rows in results.items() if key[0] == what):
            wall, hashed, cpu = (
                statistics.median(r[name] for r in rows) for name in ("wall", "hashed", "cpu")
            )
            peak = max(row["peak"] for row in rows)
            print(f"{what:<10}  {tool:<10}{wall:>8.2f}{hashed:>9.2f}{cpu:>8.2f}{peak:>9.0f}  {CHECKS[tool]}")
        print()


if __name__ == "__main__":
    main()
