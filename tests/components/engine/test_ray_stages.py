"""Stages on a Ray cluster: the same bytes as here, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from servers.ray import ROOT, RayCluster

from yanmo.common.errors import ExitCode
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store

pytestmark = pytest.mark.fault
LINES = (ROOT / "tests" / "data" / "documents.jsonl").read_text(encoding="utf-8").splitlines()
NO_ANSWER = "no Ray cluster answers (Initialization failure from server"
FLAGS = ("--batch-bytes=65536", "--shard-characters=3000", "--default-genre=文", "--log-level=debug")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in several ranges, one of blocks with near copies, a packed one, and one in another encoding."""
    folder = tmp_path_factory.mktemp("sources")
    texts = [json.loads(line)["text"] for line in LINES]
    (folder / "a.jsonl").write_text("\n".join([*LINES, "{broken", *LINES]), encoding="utf-8")
    (folder / "b.txt").write_text("\n\n".join(t + n for n in ("", "也乎") for t in texts), encoding="utf-8")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(LINES[:90]).encode(), mtime=0))
    (folder / "d.txt").write_bytes("\n".join(texts[:50]).encode("gb18030"))
    return folder


def asked(stage: str, store: object, *flags: object) -> list[str]:
    return [sys.executable, "-m", f"yanmo.{stage}", f"--store={store}", "--metrics-port=-1", *map(str, flags)]


def run(command: Sequence[str], environment: dict[str, str], expect: int = 0) -> str:
    """What it says; asked again, as it says, where the head of a busy machine could not start its process."""
    for _ in range(3):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        if NO_ANSWER not in done.stderr:
            break
    assert done.returncode == expect, done.stderr
    return done.stderr


def here(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "components"), **more}


def made(store: ObjectStore) -> dict[str, str]:
    """Stage and key -> content digest, of all that is committed."""
    names = [info.name for info in store.list("cas") if info.name.endswith("/MANIFEST.json")]
    return {n.rpartition("/")[0]: json.loads(store.read(n)[0])["content_digest"] for n in names}


def of_curate(found: dict[str, str]) -> dict[str, str]:
    own = ("cas/curate", "cas/evaluation_set")
    return {name: digest for name, digest in found.items() if name.startswith(own)}


def stages(store: object, sources: object, environment: dict[str, str], *flags: str) -> dict[str, str]:
    run(asked("curate", store, f"--sources={sources}", *FLAGS, *flags), environment)
    again = ("--quotas=*=250%", "--augment=*:synonym=0.3,*:reorder=0.3", "--shard-characters=3000")
    run(asked("balance", store, *again, *flags), environment)
    few = ("--vocab-size=2048", "--min-character-count=1", "--agreement-sentences=100")
    run(asked("tokenize", store, *few, *flags), environment)
    return made(open_store(str(store)))


@pytest.fixture(scope="module")
def made_here(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one process makes."""
    return stages(tmp_path_factory.mktemp("one") / "store", sources, here(), "--workers=1")


def test_the_data_stages_make_the_same_on_two_nodes_as_here(nodes, sources, made_here, tmp_path) -> None:
    store = tmp_path / "store"
    assert stages(store, sources, nodes.environment, "--engine=ray") == made_here
    assert stages(tmp_path / "two", sources, here(), "--workers=2") == made_here
    assert not list((store / "probes").glob("*"))
    attached = {**nodes.environment, "RAY_ADDRESS": nodes.attached}
    assert stages(tmp_path / "attached", sources, attached, "--engine=ray") == made_here


@pytest.mark.parametrize("what", ["worker", "node"])
def test_they_make_the_same_while_workers_or_a_node_are_killed(
    what, nodes, sources, made_here, tmp_path
) -> None:
    store, spare = tmp_path / "store", nodes.add_node()
    command = asked("curate", store, f"--sources={sources}", *FLAGS, "--engine=ray")
    process = subprocess.Popen(command, env=nodes.environment, stderr=subprocess.PIPE, text=True)
    kills = 0
    while process.poll() is None:
        for pid in nodes.workers(spare):
            if kills < 3 and list(store.glob("cas/curate_*")):
                os.kill(pid, signal.SIGKILL) if what == "worker" else nodes.kill_node(spare)
                kills += 1 if what == "worker" else 3
                time.sleep(0.5)
                break
        time.sleep(0.02)
    _, stderr = process.communicate()
    if what == "worker":
        nodes.kill_node(spare)
    assert process.returncode == 0, stderr
    assert kills
    assert made(open_store(str(store))) == of_curate(made_here)


def test_nothing_but_a_bucket_is_shared(s3_server, s3_place, sources, made_here, tmp_path) -> None:
    """Each node has a scratch folder of its own; what is raw lies in the bucket too."""
    own = s3_server.environment()
    with RayCluster(tmp_path, 2, [], **own) as nodes:
        environment = {**nodes.environment, "YANMO_SCRATCH": str(tmp_path / "scratch")}
        client = s3_server.client()
        bucket, _, prefix = s3_place.partition("/")
        for path in sources.iterdir():
            client.fput_object(bucket, f"{prefix}/raw/{path.name}".lstrip("/"), str(path))
        before = {n: os.environ.get(n) for n in own}
        os.environ.update(own)
        try:
            raw = f"s3://{s3_place}/raw"
            found = stages(f"s3://{s3_place}/store", raw, environment, "--engine=ray")
            left = [info.name for info in open_store(f"s3://{s3_place}/store").list("cas")]
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    assert found == made_here
    fetched = [p for p in (tmp_path / "scratch").rglob("*") if p.is_file() and p.stat().st_size]
    tables = [pq.read_schema(path) for path in fetched if path.read_bytes().startswith(b"PAR1")]
    kinds = {table.metadata.get(b"yanmo.schema") for table in tables if table.metadata}
    assert b"signed" in kinds and b"mapped" not in kinds, "no text comes to the process that decides"
    assert left and not [name for name in left if "/scratch/" in name], "what tasks gave each other"


def test_a_cluster_that_asks_for_no_token_is_refused(sources, tmp_path) -> None:
    with RayCluster(tmp_path, 1, RAY_AUTH_MODE="disabled") as nodes:
        command = asked("curate", tmp_path / "store", f"--sources={sources}", *FLAGS, "--engine=ray")
        said = run(command, {**nodes.environment, "RAY_AUTH_MODE": "token"}, ExitCode.ENVIRONMENT)
    assert "the Ray cluster runs without token authentication" in said
    assert not list((tmp_path / "store").glob("cas/*/*/MANIFEST.json"))


def test_without_the_package_or_an_address_or_a_token_it_says_what_is_missing(sources, tmp_path) -> None:
    (tmp_path / "none" / "ray").mkdir(parents=True)
    (tmp_path / "none" / "ray" / "__init__.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path / "none"), str(ROOT / "components")])
    bare = {n: v for n, v in here().items() if not n.startswith("RAY_")}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    command = asked("curate", tmp_path / "store", f"--sources={sources}", "--engine=ray")
    assert "expected --ray-address ray://HOST:10001" in run(command, bare, ExitCode.USAGE)
    command.append("--ray-address=ray://127.0.0.1:1")
    assert "expected $RAY_AUTH_MODE=token" in run(command, bare, ExitCode.ENVIRONMENT)
    empty = {**bare, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "auth_token")}
    assert "no token in $RAY_AUTH_TOKEN, nor in the file" in run(command, empty, ExitCode.ENVIRONMENT)
    said = run(command, {**bare, **token, "PYTHONPATH": path}, ExitCode.ENVIRONMENT)
    assert "the package ray is not installed: `make ray-tools`" in said


def test_a_store_or_a_file_that_only_this_process_sees_is_named(nodes, sources, tmp_path) -> None:
    """/proc/self/cwd is another folder for each process."""
    shutil.copy(sources / "a.jsonl", tmp_path / "a.jsonl")
    unseen = "does not see it. What a run on a cluster reads"
    for store, raw in (("/proc/self/cwd/store", sources), (tmp_path / "store", "/proc/self/cwd/a.jsonl")):
        command = asked("curate", store, f"--sources={raw}", *FLAGS, "--engine=ray")
        done = subprocess.run(
            command, env=nodes.environment, capture_output=True, text=True, cwd=tmp_path, timeout=300
        )
        assert done.returncode == ExitCode.ENVIRONMENT, done.stderr
        assert "/proc/self/cwd" in done.stderr and unseen in done.stderr


def test_of_two_runs_at_once_one_waits_for_the_other(nodes, sources, made_here, tmp_path) -> None:
    store = tmp_path / "store"
    command = asked("curate", store, f"--sources={sources}", *FLAGS, "--engine=ray")
    both = [subprocess.Popen(command, env=nodes.environment, stderr=subprocess.PIPE, text=True) for _ in "12"]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert made(open_store(str(store))) == of_curate(made_here)


def test_ctrl_c_leaves_nothing_half_written(nodes: RayCluster, sources: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = asked("curate", store, f"--sources={sources}", *FLAGS, "--engine=ray")
    process = subprocess.Popen(command, env=nodes.environment, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(store.glob("cas/curate_map/*/*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, stderr
    committed = {m.parent for m in store.glob("cas/*/*/MANIFEST.json")}
    assert not [p for p in store.glob("cas/*/*/*") if p.is_dir() and p.parent not in committed]
    assert not list((store / "probes").glob("*"))


def test_of_another_yanmo_is_refused_before_the_first_task_and_a_lost_head_is_75(
    sources, made_here, tmp_path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "components", other, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "yanmo" / "common" / "words.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    store = tmp_path / "store"
    command = asked("curate", store, f"--sources={sources}", *FLAGS, "--engine=ray")
    with RayCluster(tmp_path, 1, [other]) as nodes:
        mine = {**nodes.environment, "PYTHONPATH": str(ROOT / "components")}
        said = run(command, mine, ExitCode.ENVIRONMENT)
        assert "has another environment: Yanmo " in said and "Both must come from one image" in said
        assert not list(store.glob("cas/*/*/MANIFEST.json"))
        environment = nodes.environment
        for _ in range(3):
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            while process.poll() is None and not list(store.glob("cas/curate_map/*/MANIFEST.json")):
                time.sleep(0.02)
            if process.poll() is None:
                break
        nodes.kill_node(0)
        _, stderr = process.communicate(timeout=200)
        assert process.returncode == ExitCode.RETRY, stderr
        assert "the Ray cluster went away" in stderr
    before = made(open_store(str(store)))
    assert before
    run(asked("curate", store, f"--sources={sources}", *FLAGS, "--workers=1"), here())
    after = made(open_store(str(store)))
    assert after == of_curate(made_here) and before.items() <= after.items()
