"""What every backend promises, on a folder and on a real S3 server."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.s3 import S3Server
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError, LeaseLost
from yanmo.store.commit import commit_once, find_whole
from yanmo.store.objects import AlreadyExists, Changed, Damaged, ObjectStore, Wanted, Written, check_name
from yanmo.store.opening import open_store
from yanmo.store.output import find_output
from yanmo.store.pointers import create_pointer, move_pointer, read_pointer, swap_pointer
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.work_folder import WorkFolder

PART = 8 << 20


@pytest.fixture(params=["file", "s3"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], ObjectStore]:
    """Opens one empty store, each time as a process of its own would."""
    if request.param == "file":
        return lambda: open_store(str(tmp_path / "store"))
    server: S3Server = request.getfixturevalue("s3_server")
    place: str = request.getfixturevalue("s3_place")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    prefix = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]
    return lambda: open_store(f"s3://{place}/{prefix}")


@pytest.fixture
def any_store(opened: Callable[[], ObjectStore]) -> ObjectStore:
    return opened()


def test_create_writes_once_and_the_second_creator_is_told(any_store: ObjectStore) -> None:
    version = any_store.create("a/b.json", b"1")
    with pytest.raises(AlreadyExists, match=r"a/b\.json: already there"):
        any_store.create("a/b.json", b"2")
    assert any_store.read("a/b.json") == (b"1", version)


def test_replace_needs_the_version_that_was_read(any_store: ObjectStore) -> None:
    first = any_store.create("p.json", b"1")
    second = any_store.replace("p.json", b"2", first)
    with pytest.raises(Changed, match=r"p\.json"):
        any_store.replace("p.json", b"3", first)
    assert any_store.read("p.json") == (b"2", second)


def test_replace_of_a_vanished_object_is_refused(any_store: ObjectStore) -> None:
    version = any_store.create("p.json", b"1")
    any_store.delete("p.json")
    any_store.delete("p.json")
    with pytest.raises(Changed):
        any_store.replace("p.json", b"2", version)
    assert any_store.stat("p.json") is None
    with pytest.raises(FileNotFoundError):
        any_store.read("p.json")


def in_threads(actions: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_many_threads_that_create_one_name_one_wins(any_store: ObjectStore) -> None:
    won: list[bytes] = []
    start = threading.Barrier(8)

    def create(data: bytes) -> None:
        start.wait()
        try:
            any_store.create("one.json", data)
            won.append(data)
        except AlreadyExists:
            pass

    in_threads([lambda n=n: create(b"%d" % n) for n in range(8)])  # type: ignore[misc]
    assert won == [any_store.read("one.json")[0]]


def test_compare_and_swap_from_many_threads_loses_no_update(any_store: ObjectStore) -> None:
    # Each body names its writer, as a lease's does: radosgw answers some of these races with 500, and after
    # that only the body tells a writer whether the object that is there is its own (S3Store._put_if).
    any_store.create("count", b"0 nobody")

    def add(writer: int) -> None:
        done = 0
        while done < 5:
            data, version = any_store.read("count")
            try:
                any_store.replace("count", b"%d %d" % (int(data.split()[0]) + 1, writer), version)
                done += 1
            except Changed:
                continue

    in_threads([lambda n=n: add(n) for n in range(4)])  # type: ignore[misc]
    assert any_store.read("count")[0].split()[0] == b"20"


def test_objects_are_listed_with_size_and_age_by_the_stores_own_clock(any_store: ObjectStore) -> None:
    version = any_store.create("b", b"")
    any_store.replace("b", b"12", version)
    any_store.create("a/c", b"1")
    any_store.create("ab/d", b"1")
    assert [(info.name, info.bytes) for info in any_store.list("")] == [("a/c", 1), ("ab/d", 1), ("b", 2)]
    assert [info.name for info in any_store.list("a")] == ["a/c"]
    assert any_store.sizes(["b", "nothing", "a/c"]) == [2, None, 1]
    assert abs(any_store.clock() - next(any_store.list("a")).modified) < 60
    assert list(any_store.leftovers()) == []


SIZES = {
    "empty": 0,
    "small": 5,
    "part": PART,
    "more-than-a-part": PART + 1,
    "deep/er/large": 3 * PART + 12_345,
}


def publish(store: ObjectStore) -> dict[str, Written]:
    folder = store.writable("cas/toy/key/attempt")
    for name, size in SIZES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.urandom(size))
    expected = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in SIZES}
    written = dict(zip(SIZES, store.publish("cas/toy/key/attempt", list(SIZES)), strict=True))
    assert {name: one.sha256 for name, one in written.items()} == expected
    return written


def wanted(written: dict[str, Written]) -> list[Wanted]:
    return [Wanted(f"cas/toy/key/attempt/{name}", one.bytes, one.sha256) for name, one in written.items()]


def test_what_is_published_is_fetched_whole_under_its_own_name(opened: Callable[[], ObjectStore]) -> None:
    written = publish(opened())
    paths = opened().fetch(wanted(written))
    assert [path.name for path in paths] == [Path(name).name for name in SIZES]
    assert paths[0].parent == paths[1].parent, "a model's files must lie side by side"
    for path, one in zip(paths, written.values(), strict=True):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == one.sha256
    assert list(opened().leftovers()) == []


def test_a_missing_short_or_changed_object_is_named_with_what_was_expected(
    opened: Callable[[], ObjectStore],
) -> None:
    store = opened()
    written = publish(store)
    small = written["small"]
    name = "cas/toy/key/attempt/small"
    with pytest.raises(Damaged, match=rf"{name}: expected 6 bytes, found 5 bytes"):
        opened().fetch([Wanted(name, 6, small.sha256)])
    with pytest.raises(Damaged, match=rf"{name}: changed since it was committed: expected sha256 0000"):
        opened().fetch([Wanted(name, 5, "0" * 64)])
    store.delete(name)
    with pytest.raises(Damaged, match=rf"{name}: expected 5 bytes, found no such file"):
        opened().fetch([Wanted(name, 5, "1" * 64)])
    with pytest.raises(Damaged, match="found no such file"):
        opened().fetch([Wanted("cas/toy/key/attempt/nothing", 0, hashlib.sha256(b"").hexdigest())])


def test_a_discarded_attempt_leaves_nothing(any_store: ObjectStore) -> None:
    publish(any_store)
    any_store.discard("cas/toy/key/attempt", list(SIZES))
    any_store.discard("cas/toy/key/attempt", [])
    assert list(any_store.list("")) == []
    assert list(any_store.writable("cas/toy/key/attempt").iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/../b", "/a", "名", "a" * 201])
def test_hostile_names_are_refused_before_anything_is_asked(any_store: ObjectStore, name: str) -> None:
    for ask in (any_store.read, any_store.stat, any_store.delete, any_store.writable, check_name):
        with pytest.raises(DataError, match="refused object name"):
            ask(name)
    with pytest.raises(DataError, match="refused object name"):
        any_store.create(name, b"")


def test_two_writers_of_one_key_agree_and_the_loser_leaves_nothing(opened: Callable[[], ObjectStore]) -> None:
    made: list[Any] = []
    in_threads(
        [
            lambda text=text: made.append(
                commit_once(opened(), recipe(), write_text(text), wait_seconds=0.05)
            )  # type: ignore[misc]
            for text in ("春江潮水连海平", "海上明月共潮生")
        ]
    )
    assert len({output.content_digest for output in made}) == 1
    store = opened()
    found = find_whole(store, "toy", recipe().key)
    assert found is not None and found.path("text.txt").read_text(encoding="utf-8")
    names = [info.name for info in store.list("cas")]
    assert len(names) == 3, names  # two files and their manifest


def test_force_replaces_the_manifest_and_keeps_the_old_one(opened: Callable[[], ObjectStore]) -> None:
    first = commit_once(opened(), recipe(), write_text("春"))
    second = commit_once(opened(), recipe(), write_text("秋"), force=True)
    assert first and second and first.content_digest != second.content_digest
    found = find_output(opened(), "toy", recipe().key)
    assert found is not None and found.content_digest == second.content_digest
    assert len([i for i in opened().list("cas") if "MANIFEST-" in i.name]) == 1


def test_pointers_are_set_once_moved_and_swapped(opened: Callable[[], ObjectStore]) -> None:
    store = opened()
    one, two = (commit_once(store, recipe(seed=seed), write_text(str(seed))) for seed in (1, 2))
    assert one and two
    assert create_pointer(store, "dev", "toy", one.reference) == one.reference
    assert create_pointer(opened(), "dev", "toy", two.reference) == one.reference
    assert not swap_pointer(store, "dev", "toy", two.reference, two.reference)
    assert swap_pointer(store, "dev", "toy", one.reference, two.reference)
    move_pointer(opened(), "dev", "toy", one.reference)
    assert read_pointer(store, "dev", "toy") == one.reference


def test_a_work_folder_goes_on_where_another_machine_left_it(
    opened: Callable[[], ObjectStore], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = WorkFolder(opened(), "runs/train/key")
    lease = Lease(opened(), "runs/train/key/LEASE.json", "one")
    assert lease.acquire()
    for label in ("step-1", "step-2", "step-0"):
        (here.path / label).mkdir()
        (here.path / label / "weights").write_text(label)
        here.save(label, [f"{label}/weights"], lease)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "another node"))
    there = WorkFolder(opened(), "runs/train/key")
    assert there.restore("step-1") is not there.is_in_store
    assert (there.path / "step-2/weights").read_text() == "step-2"
    assert not there.restore("step-2") and not there.restore("step-3")
    if not there.is_in_store:
        assert not (there.path / "step-1").exists(), "only the newest state is kept"
        saved = [i.name for i in opened().list("runs") if "weights" in i.name]
        assert saved == ["runs/train/key/one/step-2/weights"]
        lease.release()
        another = Lease(opened(), "runs/train/key/LEASE.json", "two")
        assert another.acquire()
        (here.path / "step-3").mkdir()
        (here.path / "step-3/weights").write_text("of a run that lost its lease")
        with pytest.raises(LeaseLost):
            here.save("step-3", ["step-3/weights"], lease)
        assert not there.restore("step-2")
        another.remove()
        there.forget()
        assert not here.restore("")
    lease.release()


@pytest.fixture(autouse=True)
def _nothing_left_open(opened: Callable[[], ObjectStore]) -> Iterator[None]:
    """After every test no upload is unfinished and no temporary file is left."""
    yield
    assert list(opened().leftovers()) == []


def test_digest_reads_what_is_stored_now_past_any_cache(any_store: ObjectStore) -> None:
    body = b"x" * (PART + 5)
    folder = any_store.writable("cas/toy/key/attempt")
    (folder / "large.bin").write_bytes(body)
    any_store.publish("cas/toy/key/attempt", ["large.bin"])
    any_store.create("small.json", b"1")
    any_store.create("empty", b"")
    assert any_store.digest("cas/toy/key/attempt/large.bin") == Written(
        len(body), hashlib.sha256(body).hexdigest()
    )
    assert any_store.digest("empty") == Written(0, hashlib.sha256(b"").hexdigest())
    assert any_store.digest("none") is None and any_store.digest("cas/toy") is None
    any_store.replace("small.json", b"2", any_store.read("small.json")[1])
    assert any_store.digest("small.json") == Written(1, hashlib.sha256(b"2").hexdigest())


def test_a_folder_goes_with_its_last_object_and_writers_make_it_again(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    names = [f"runs/toy/key/{n}.json" for n in range(3)]

    def write_and_delete(name: str) -> None:
        for _ in range(150):
            store.create(name, b"1")
            store.delete(name)

    threads = [threading.Thread(target=write_and_delete, args=(name,)) for name in names]
    errors: list[object] = []
    hook, threading.excepthook = threading.excepthook, errors.append
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    assert not errors
    assert not (tmp_path / "store/runs/toy/key").exists() and (tmp_path / "store/runs/toy").is_dir()


def test_a_second_name_holds_the_same_bytes_and_outlives_the_first(opened: Callable[[], ObjectStore]) -> None:
    store = opened()
    (store.writable("cas/a/1") / "x").write_bytes(b"ink" * 1000)
    (written,) = store.publish("cas/a/1", ["x"])
    wanted = Wanted("cas/a/1/x", written.bytes, written.sha256)
    store.link([(wanted, "cas/b/2/y"), (wanted, "cas/b/2/z")])
    store.delete("cas/a/1/x")
    for name in ("cas/b/2/y", "cas/b/2/z"):
        assert opened().digest(name) == written


def test_a_second_name_for_what_is_missing_or_short_is_refused(opened: Callable[[], ObjectStore]) -> None:
    store = opened()
    (store.writable("cas/a/1") / "x").write_bytes(b"ink")
    (written,) = store.publish("cas/a/1", ["x"])
    for wanted in (Wanted("cas/a/1/no", 3, written.sha256), Wanted("cas/a/1/x", 4, written.sha256)):
        with pytest.raises(Damaged):
            store.link([(wanted, "cas/b/2/y")])
    assert store.stat("cas/b/2/y") is None
