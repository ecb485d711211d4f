from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from asked_of_nodes import begun, fail, size_of, slow, too_large, total, which, write_or_die
from servers.ray import RayCluster

from yanmo.common.errors import DataError, ExitCode, StorageError, WorkerLost, exit_code
from yanmo.engine import maps
from yanmo.engine.maps import add_made, brought_here, each, ordered_map, paths_for_tasks, remove_folder
from yanmo.engine.ray_cluster import TRIES, Cluster
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore

pytestmark = pytest.mark.fault


@pytest.fixture
def store(nodes: RayCluster, tmp_path: Path) -> Iterator[FileStore]:
    """A store whose work is done on the cluster."""
    found = FileStore(tmp_path / "store")
    maps.begin(options(nodes), found)
    yield found
    maps.begin(SimpleNamespace(engine="local"), found)


def options(nodes: RayCluster, workers: int = 0) -> SimpleNamespace:
    address = nodes.environment["RAY_ADDRESS"]
    return SimpleNamespace(engine="ray", ray_address=address, workers=workers, endpoint="", scratch_gib=1.0)


def commit(store: FileStore, build) -> tuple[Path, ...]:
    """What `build` makes, as the files of a committed output."""
    output = commit_once(store, Recipe(stage="curate", revision=1, semantic={}, inputs={}), build)
    assert output is not None
    return tuple(output.paths("*.bin"))


def write_all(numbers: range, notes: Path, kills: int):
    notes.mkdir()

    def build(attempt: Attempt) -> Result:
        tasks = ((n, attempt.path(f"{n:03d}.bin"), str(notes), kills if n % 3 == 0 else 0) for n in numbers)
        with ordered_map(write_or_die, tasks, 2) as results:
            for path in results:
                assert path.parent == attempt.directory, "where this process sees it"
                add_made(attempt, [path.name])
        return Result(counts={})

    return build


def test_results_come_in_the_order_of_tasks_from_both_nodes(store: FileStore) -> None:
    found = list(ordered_map(which, range(60), 2))
    assert [number for number, _ in found] == list(range(60))
    assert len({pid for _, pid in found} - {os.getpid()}) == 2


def test_only_a_few_tasks_are_drawn_ahead_of_the_results(store: FileStore) -> None:
    drawn = []
    with ordered_map(slow, (drawn.append(n) or n for n in range(40)), 2) as results:
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        assert len(drawn) <= 2 * 2 + 1 + 3


def test_workers_that_are_killed_in_the_middle_of_a_file_leave_it_whole(store: FileStore, tmp_path) -> None:
    """Each third task twice."""
    paths = commit(store, write_all(range(9), tmp_path / "notes", kills=2))
    assert [p.read_bytes() for p in paths] == [f"first half, second half {n}".encode() for n in range(9)]
    assert len(list((tmp_path / "notes").iterdir())) == 6
    assert not [p for p in store.root.rglob("*") if p.name.startswith(".try-")], "what lost tries left"


def test_a_task_whose_workers_are_always_killed_ends_with_75_and_nothing_half_written(
    store, tmp_path
) -> None:
    with pytest.raises(
        WorkerLost, match=rf"was lost \(WorkerCrashedError\) in write_or_die, {TRIES} times"
    ) as lost:
        commit(store, write_all(range(2), tmp_path / "notes", kills=TRIES))
    assert exit_code(lost.value) == ExitCode.RETRY
    assert not list(store.root.rglob("*.bin"))


def test_a_node_that_is_killed_is_done_without(nodes: RayCluster, store: FileStore, tmp_path) -> None:
    number = nodes.add_node()
    note = tmp_path / "note"
    with ordered_map(begun, ((str(note), 1.0) for _ in range(12)), 3) as results:
        deadline = time.monotonic() + 60
        on_it = lambda: {*nodes.workers(number)} & {*map(int, note.read_text().split())}  # noqa: E731
        while not (note.exists() and on_it()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert on_it(), "a task has begun there"
        nodes.kill_node(number)
        assert list(results) == [1.0] * 12
    assert maps._cluster is not None and maps._cluster.lost >= 1


def test_an_error_of_a_task_ends_the_work_as_it_would_have_here(store: FileStore) -> None:
    with pytest.raises(DataError, match="document 7 is not one"), ordered_map(fail, range(20), 2) as results:
        list(results)
    assert list(ordered_map(fail, range(3), 2)) == [0, 1, 2], "the cluster is as before"


def test_an_error_in_one_of_several_threads_is_that_error(store: FileStore) -> None:
    def ask(start: int) -> list[int]:
        with ordered_map(fail, range(start, start + 3), 2) as results:
            return list(results)

    with pytest.raises(DataError, match="document 7"):
        each(ask, range(0, 30, 3), 2)


def test_a_task_without_memory_says_what_to_lower(store: FileStore) -> None:
    with pytest.raises(
        WorkerLost, match=r"too_large found no memory .* with a smaller --batch-bytes, or give"
    ):
        list(ordered_map(too_large, range(1), 2, "a smaller --batch-bytes"))


def test_a_file_of_this_process_goes_along(store: FileStore, tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(1000))
    assert list(ordered_map(total, [tmp_path / "numbers.npy"] * 5, 2)) == [499500] * 5


def test_what_one_task_makes_another_reads(store: FileStore, tmp_path: Path) -> None:
    def build(attempt: Attempt) -> Result:
        folder = attempt.path("scratch/x").parent
        tasks = [(n, folder / f"{n}", str(tmp_path), 0) for n in range(4)]
        made = list(ordered_map(write_or_die, tasks, 2))
        assert list(ordered_map(size_of, made, 2)) == [25] * 4
        assert brought_here(made[0]).read_bytes() == b"first half, second half 0"
        remove_folder(folder)
        attempt.write("a.bin", b"")
        return Result(counts={})

    assert len(commit(store, build)) == 1


def test_a_file_of_an_output_that_has_changed_or_is_gone_is_refused_where_it_is_read(
    store: FileStore,
) -> None:
    output = commit_once(
        store,
        Recipe(stage="curate", revision=1, semantic={}, inputs={}),
        lambda attempt: Result(counts={"n": attempt.write("a.bin", b"whole").bytes}),
    )
    assert output is not None
    (path,) = paths_for_tasks(output, "a.bin")
    assert list(ordered_map(size_of, [path], 2)) == [5]
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(DataError, match="changed since it was committed"):
        list(ordered_map(size_of, [path], 2))
    path.unlink()
    with pytest.raises(DataError, match=r"a\.bin"):
        list(ordered_map(size_of, [path], 2))


def test_a_cluster_without_room_says_so(nodes: RayCluster, tmp_path: Path, caplog) -> None:
    cluster = Cluster(options(nodes, workers=8), FileStore(tmp_path / "store"), say_seconds=1.0)
    try:
        coming = [cluster.submit(begun, (str(tmp_path / f"{n}"), 3.0)) for n in range(4)]
        assert [one.result() for one in coming] == [3.0] * 4
    finally:
        cluster.close()
    assert "waiting for 4 tasks on the Ray cluster" in caplog.text
    assert "no room: its CPUs are all taken (0 of 2 CPUs free)" in caplog.text


def test_ending_the_work_ends_the_tasks(nodes: RayCluster, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    maps.begin(options(nodes), store)
    note = tmp_path / "note"
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), ordered_map(begun, [(str(note), 300.0)] * 2, 2) as results:
        while not note.exists():
            time.sleep(0.05)
        _ = results and 1 / 0
    for pid in map(int, note.read_text().split()):
        while os.path.exists(f"/proc/{pid}") and time.monotonic() - began < 60:
            time.sleep(0.1)
        assert not os.path.exists(f"/proc/{pid}")
    maps.begin(SimpleNamespace(engine="local"), store)
    assert not list(store.root.rglob("probes/*")), "nothing of this run is left in the store"


def test_a_cluster_that_stands_still_is_left(nodes: RayCluster, tmp_path: Path) -> None:
    token = nodes.environment["RAY_AUTH_TOKEN"]  # Ray reads it once in a process
    with RayCluster(tmp_path, 1, [Path(__file__).parent], RAY_AUTH_TOKEN=token) as other:
        cluster = Cluster(options(other), FileStore(tmp_path / "store"), answer_seconds=5.0)
        note = tmp_path / "note"
        coming = cluster.submit(begun, (str(note), 300.0))
        while not note.exists() and not coming.done():
            time.sleep(0.05)
        other.stop(0)
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"the Ray cluster went away: .*no answer for 5 s"):
            coming.result(timeout=120)
        cluster.close()
        assert time.monotonic() - began < 120
    assert not list((tmp_path / "store").rglob("probes/*"))


def test_a_connection_that_ended_is_not_made_again(
    nodes: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's client would connect by itself, and wait without end for tasks that a new head does not know."""
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    cluster = Cluster(options(nodes), FileStore(tmp_path / "store"))
    importlib.import_module("ray").shutdown()
    with pytest.raises(StorageError, match="the Ray cluster went away"):
        cluster.submit(begun, (str(tmp_path / "note"), 0.0)).result(timeout=120)
    monkeypatch.setattr("yanmo.engine.ray_cluster._CPUS_SECONDS", 0.0)
    with pytest.raises(StorageError, match="the Ray cluster went away"):
        cluster.cpus()
    (tmp_path / "file").write_text("to send")
    with pytest.raises(StorageError, match="the Ray cluster went away"):
        cluster.submit(begun, tmp_path / "file")
    cluster.close()


def test_a_worker_that_ray_kills_for_memory_is_named_with_what_to_lower(
    nodes: RayCluster, tmp_path: Path, caplog
) -> None:
    """Ray's own monitor kills: of a node it may use less than what is taken already."""
    monitor = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    token = nodes.environment["RAY_AUTH_TOKEN"]
    with RayCluster(tmp_path, 1, [Path(__file__).parent], RAY_AUTH_TOKEN=token, **monitor) as other:
        cluster = Cluster(options(other), FileStore(tmp_path / "store"))
        coming = cluster.submit(begun, (str(tmp_path / "note"), 60.0), less="a smaller --batch-bytes")
        with pytest.raises(WorkerLost, match=r"begun found no memory .* 4 times; .* a smaller --batch-bytes"):
            coming.result(timeout=300)
        cluster.close()
    assert "was killed as its node had no memory left in begun; its task is done again" in caplog.text
