"""A training whose container is killed for its memory: real control groups, and what their files say."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import EnvironmentFault
from yanmo.options.fields import flag
from yanmo.store.file_store import FileStore
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import doing_path, heartbeat_path
from yanmo.train.memory.cgroup import MemoryGroup
from yanmo.train.memory.killed import FILE, MOST_KILLS, KillWatch, MemoryRecord
from yanmo.train.memory.micro_batch import largest_micro_batch

V1 = Path("/sys/fs/cgroup/memory")
LIMIT, ROW_BYTES = 900 << 20, 80 << 20


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return folder


V2_FILES = {
    "memory.max": "3221225472\n",
    "memory.stat": "anon 1000\nfile 70000\nkernel 33\nshmem 200\nanon_thp 5\n",
    "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 1\n",
}
V1_FILES = {
    "memory.limit_in_bytes": "3221225472\n",
    "memory.stat": "cache 9\nrss 7\nshmem 0\ntotal_cache 70000\ntotal_rss 1000\ntotal_shmem 200\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}


@pytest.mark.parametrize(
    ("files", "own"),
    [
        (V2_FILES, "0::/\n"),
        ({f"kubepods/pod1/{name}": text for name, text in V2_FILES.items()}, "0::/kubepods/pod1\n"),
        (V2_FILES, "0::/of/the/host\n"),
        ({f"memory/{name}": text for name, text in V1_FILES.items()}, "3:cpu:/x\n4:memory:/y\n0::/\n"),
        ({f"memory/p/{name}": text for name, text in V1_FILES.items()}, "4:cpu,memory:/p\n0::/\n"),
    ],
)
def test_both_versions_say_limit_use_and_kills(tmp_path: Path, files: dict[str, str], own: str) -> None:
    group = MemoryGroup(tree(tmp_path / "fs", files), tree(tmp_path, {"own": own}) / "own")
    assert (group.limit(), group.used(), group.kills()) == (3 << 30, 1200, 3)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"memory.max": "max\n"},
        {"memory.max": str(1 << 60)},
        {"memory/memory.limit_in_bytes": "9223372036854771712\n"},
    ],
)
def test_without_a_limit_there_is_none(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "fs").mkdir()
    group = MemoryGroup(tree(tmp_path / "fs", files), tmp_path / "none")
    assert (group.limit(), group.used(), group.kills()) == (0, 0, 0)


class Group(MemoryGroup):
    """A group whose figures the test says, read from real files."""

    def __init__(self, folder: Path, limit: int) -> None:
        tree(folder, {"memory.max": str(limit), "memory.stat": "anon 0\n", "memory.events": "oom_kill 0\n"})
        super().__init__(folder, folder / "none")
        self.folder = folder

    def fill(self, used: int) -> None:
        (self.folder / "memory.stat").write_text(f"anon {used}\n", encoding="ascii")


@pytest.fixture
def kept(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


OPTIONS = TrainConfig(batch_rows=16, ranks=1, micro_batch=0)
Start = Callable[..., KillWatch]


@pytest.fixture
def start(kept: FileStore, tmp_path: Path, folder: Path) -> Iterator[Start]:
    """Starts a watch as a new container does: what the one before held in memory is gone."""
    begun: list[KillWatch] = []

    def begin(options: TrainConfig = OPTIONS, limit: int = 1000) -> KillWatch:
        (folder / "micro_batch.json").unlink(missing_ok=True)
        group = Group(tmp_path / "group", limit)
        begun.append(KillWatch(kept, "runs/train/" + "0" * 64, folder, group).begin(options))
        return begun[-1]

    yield begin
    for watch in begun:
        watch.__exit__(None, None, None)


def record(kept: FileStore) -> MemoryRecord:
    return MemoryRecord.from_json(kept.read("runs/train/" + "0" * 64 + f"/{FILE}")[0])


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def die(watch: KillWatch, kept: FileStore, full: bool, doing: str = "", then: str = "") -> None:
    """End as `kill -9` does, with full memory or not, after its ranks have reported what they do."""
    group, folder = watch._group, watch._folder
    for report in (doing, then):
        if report:
            beat = heartbeat_path(folder, 0)
            beat.parent.mkdir(exist_ok=True)
            beat.touch()
            doing_path(beat).write_text(report, encoding="utf-8")
            watch.look()
    if full:
        assert isinstance(group, Group)
        group.fill(950)
        wait_until(lambda: record(kept).was_full)
    watch._stop.set()
    for path in folder.glob("heartbeats/*"):
        path.unlink()


def test_full_memory_halves_until_one_row_is_left_or_the_bound_is_reached(
    kept: FileStore, start: Start, folder: Path
) -> None:
    for rows in (16, 8, 4, 2, 1):
        watch = start()
        assert watch._record.rows == rows and (largest_micro_batch(folder)[0] or 16) == rows
        die(watch, kept, full=True, doing="training step 7")
    for _ in range(2):  # it stays so, whoever tries
        with pytest.raises(EnvironmentFault, match=r"in training step 7, 5 times, .*of 1; give the pod more"):
            start()
    many = dataclasses.replace(OPTIONS, batch_rows=1024)
    assert MOST_KILLS == 4 and record(kept).kills == 4 and many.micro_rows > 16


def test_the_bound_holds_for_many_rows(kept: FileStore, start: Start) -> None:
    options = dataclasses.replace(OPTIONS, batch_rows=1024)
    for _ in range(MOST_KILLS + 1):
        die(start(options), kept, full=True)
    with pytest.raises(EnvironmentFault, match="5 times, at last with a micro batch of 64"):
        start(options)
    fewer = start(dataclasses.replace(options, micro_batch=8))
    assert fewer._record.rows == 8, "somebody gives fewer rows"
    die(fewer, kept, full=False)
    assert start(options, limit=2000)._record.rows == 1024, "a larger container"


@pytest.mark.parametrize("doing", ["", "importing torch", "loading a checkpoint", "saving a checkpoint"])
def test_deleted_containers_change_nothing_however_many(kept: FileStore, start: Start, doing: str) -> None:
    for _ in range(6):
        watch = start()
        assert watch._record.rows == 16 and not watch._record.most_rows
        die(watch, kept, full=False, doing=doing)


def test_once_a_step_has_ended_no_silent_death_counts(kept: FileStore, start: Start) -> None:
    die(start(), kept, full=False, doing="training step 1", then="training step 2")
    for _ in range(6):
        watch = start()
        assert watch._record.rows == 16
        die(watch, kept, full=False, doing="training step 1")


def test_two_silent_deaths_in_a_row_in_the_first_step_count_as_lack_of_memory(
    kept: FileStore, start: Start
) -> None:
    die(start(), kept, full=False, doing="training step 1")
    watch = start()
    assert watch._record.rows == 16
    die(watch, kept, full=False, doing="training step 1")
    assert start()._record.rows == 8


def test_without_a_limit_nothing_counts(kept: FileStore, start: Start) -> None:
    for _ in range(4):
        watch = start(limit=1 << 60)
        assert watch._record.rows == 16
        die(watch, kept, full=False, doing="training step 1")


@pytest.mark.parametrize("error", [None, SystemExit(143), EnvironmentFault("x"), KeyboardInterrupt()])
def test_an_end_of_its_own_is_none_by_memory(
    kept: FileStore, start: Start, error: BaseException | None
) -> None:
    watch = start()
    assert isinstance(watch._group, Group)
    watch._group.fill(950)
    wait_until(lambda: record(kept).was_full)
    try:
        with watch:
            if error:
                raise error
    except BaseException as raised:
        assert raised is error
    assert start()._record.rows == 16


def test_rows_that_did_not_fit_a_gpu_are_known_to_the_next_pod(kept: FileStore, start: Start) -> None:
    with start() as watch:
        watch.keep_largest(4)
    assert start()._record.rows == 4


@given(
    st.builds(
        MemoryRecord,
        limit_bytes=st.integers(0, 1 << 50),
        high_bytes=st.integers(0, 1 << 50),
        rows=st.integers(0, 10**6),
        doing=st.text(max_size=20),
        fitted=st.booleans(),
        ended=st.booleans(),
        kills=st.integers(0, 9),
    )
)
def test_a_record_is_read_as_it_was_written(one: MemoryRecord) -> None:
    assert MemoryRecord.from_json(one.to_json()) == one


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"[1]", b'{"schema": "yanmo.memory/1"}', b"\xff"])
def test_a_damaged_record_ends_no_training(kept: FileStore, start: Start, data: bytes) -> None:
    kept.create("runs/train/" + "0" * 64 + f"/{FILE}", data)
    assert start()._record.rows == 16


# With a real training in a real control group


@pytest.fixture
def container(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group of the first version with little memory."""
    group = V1 / f"yanmo-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"needs a control group of its own for memory, version 1: {error}")
    yield group
    kill_all(group)
    wait_until(lambda: not pids_of(group))
    group.rmdir()


def pids_of(group: Path) -> list[int]:
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


def kill_all(group: Path) -> None:
    for pid in pids_of(group):
        os.kill(pid, signal.SIGKILL)


def run_in(group: Path, store: Path, options: dict, site: str) -> subprocess.Popen[str]:
    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    flags = [f"{flag(name)}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [sys.executable, "-m", "yanmo.train", f"--store={store}", "--metrics-port=-1", *flags],
        env={**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=enter,
    )


def model_of(store: Path) -> Output:
    opened = open_store(str(store))
    pointer = read_pointer(opened, "dev", "train")
    assert pointer is not None
    return open_reference(opened, pointer)


def is_full(path: Path) -> bool:
    return MemoryRecord.from_json(path.read_bytes()).was_full


def losses_of(model: Output) -> list[float]:
    lines = model.path("metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]


def check_halved(store: Path, undisturbed: Path) -> None:
    """The model was trained on half the rows at a time, and on the same samples."""
    model = model_of(store)
    events = model.manifest.metadata["events"]
    assert [(event["event"], event["micro_batch"]) for event in events] == [("settings", 4)], events
    assert "memory" in events[0]["reason"]
    pairs = zip(losses_of(model), losses_of(model_of(undisturbed)), strict=True)
    assert all(abs(a - b) < 1e-4 for a, b in pairs)


@pytest.mark.fault
def test_a_container_killed_whole_for_its_memory_goes_on_with_half_the_rows(
    store: Path, trained_store: Path, tiny: dict, tmp_path: Path, faults, container: Path
) -> None:
    """As on cgroup v2. Version 1 kills the rank alone; the supervisor must not see that, and goes with it."""
    site = faults.install(tmp_path / "site", f"faults.hungry({ROW_BYTES})")
    first = run_in(container, store, tiny, site)

    def is_noted() -> bool:
        assert first.poll() is None, first.communicate()[1]
        return any(is_full(path) for path in store.glob(f"runs/train/*/{FILE}"))

    wait_until(is_noted)
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: "oom_kill 1" in (container / "memory.oom_control").read_text())
    kill_all(container)
    log = first.communicate(timeout=60)[1]
    assert first.returncode == -signal.SIGKILL, log
    wait_until(lambda: not pids_of(container))
    second = run_in(container, store, tiny, site)
    log = second.communicate(timeout=300)[1]
    assert second.returncode == 0, log
    assert "killed for lack of memory (943.7 MB)" in log and "going on with 4" in log
    check_halved(store, trained_store)
    assert not list(store.glob(f"runs/train/*/{FILE}")), "it is committed"


@pytest.mark.fault
def test_a_rank_killed_for_the_containers_memory_goes_on_with_half_the_rows(
    store: Path, trained_store: Path, tiny: dict, tmp_path: Path, faults, container: Path
) -> None:
    """As on cgroup v1, where the system kills one process."""
    site = faults.install(tmp_path / "site", f"faults.hungry({ROW_BYTES})")
    only = run_in(container, store, tiny, site)
    log = only.communicate(timeout=300)[1]
    assert only.returncode == 0, log
    assert "out of memory with a micro batch of 8 rows on rank 0; going on with 4 rows" in log
    check_halved(store, trained_store)
