"""The commit protocol: whole or invisible, one winner, nothing lost; by real processes and real kills."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killed_writes import die_at_write
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError, LeaseLost
from yanmo.store import commit as commit_module
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.objects import MAX_DOCUMENT_BYTES
from yanmo.store.output import Output, Pause, find_output, open_reference
from yanmo.store.runs.in_use import check_present

POINTS = ("half-written", "before-manifest", "in-create", "before-link", "after-link", "after-manifest")
COMMITTED = ("after-link", "after-manifest")
Start = Callable[..., "subprocess.Popen[str]"]


def reach(process: subprocess.Popen[str], point: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == point:
            return
    raise AssertionError(f"never came to {point}: {process.stderr.read() if process.stderr else ''}")


def never(attempt: Attempt) -> Result:
    raise AssertionError("the work ran again")


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_any_point_leaves_nothing_half_visible_and_a_rerun_ends_well(
    store: FileStore, writer: Start, point: str
) -> None:
    process = writer(point)
    reach(process, point)
    process.kill()
    process.wait()
    found = find_output(store, "toy", recipe().key)
    assert (found is not None) == (point in COMMITTED)
    made = commit_once(store, recipe(), never if found else write_text("春江潮水连海平"), wait_seconds=0.05)
    assert made is not None and made.path("text.txt").read_text(encoding="utf-8") == "春江潮水连海平"


@pytest.mark.parametrize("point", POINTS)
def test_sigterm_at_any_point_keeps_a_committed_output_whole_and_removes_any_other(
    store: FileStore, writer: Start, point: str
) -> None:
    process = writer(point)
    reach(process, point)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    found = find_output(store, "toy", recipe().key)
    assert (found is not None) == (point in COMMITTED)
    if found:
        assert found.missing() is None
    else:
        assert not [info for info in store.list("") if info.name.startswith("cas/")]
    assert not list(store.root.rglob(".tmp-*"))


def test_a_second_writer_waits_and_adopts_the_first_ones_result(store: FileStore, writer: Start) -> None:
    first = writer("before-manifest", "第一")
    reach(first, "before-manifest")
    second = writer("nowhere", "第二")
    assert second.stdout is not None and first.stdin is not None
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.wait(30) == 0 and second.wait(30) == 0
    assert second.stdout.read() == "done 第一\n"


def test_a_waiting_writer_takes_over_at_once_when_the_first_is_killed(
    store: FileStore, writer: Start
) -> None:
    first = writer("half-written", "第一")
    reach(first, "half-written")
    second = writer("nowhere", "第二")
    first.kill()
    first.wait()
    assert second.wait(30) == 0 and second.stdout is not None
    assert second.stdout.read().endswith("done 第二\n")


def test_eight_writers_at_once_build_once_and_agree(store: FileStore, writer: Start) -> None:
    processes = [writer("nowhere", f"{n}号") for n in range(8)]
    said = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert len({lines[-1] for lines in said}) == 1
    assert sum(line.startswith("building") for lines in said for line in lines) == 1


def take_over(store: FileStore, text: str) -> Callable[[Attempt], Result]:
    """Work during which another writer, that holds the lease to be over, commits the same key."""

    def build(attempt: Attempt) -> Result:
        lease = attempt.lease.name
        body = json.loads(store.read(lease)[0])
        other = {**body, "machine": "elsewhere", "expires_at": 1.0, "ttl_seconds": 0.1}
        store.replace(lease, json.dumps(other).encode(), store.read(lease)[1])
        assert commit_once(store, recipe(), write_text("先到的")) is not None
        return write_text(text)(attempt)

    return build


def test_a_writer_that_lost_its_lease_stops_before_its_commit(store: FileStore) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        commit_once(store, recipe(), take_over(store, "后到的"))
    found = find_output(store, "toy", recipe().key)
    assert found is not None and found.path("text.txt").read_text(encoding="utf-8") == "先到的"
    assert len(list((store.root / "cas/toy" / recipe().key).iterdir())) == 2, "the loser's attempt is removed"


def test_the_loser_of_a_race_adopts_the_winner_even_if_its_own_content_differs(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module.Lease, "check", lambda self: None)  # the check came too early
    made = commit_once(store, recipe(), take_over(store, "后到的"))
    assert made is not None and made.path("text.txt").read_text(encoding="utf-8") == "先到的"


def test_force_with_equal_content_keeps_the_reference_and_leaves_no_second_attempt(
    store: FileStore, output: Output
) -> None:
    again = commit_once(store, recipe(), write_text("春江潮水连海平"), force=True)
    assert again is not None and again.reference == output.reference
    assert len([p for p in (store.root / "cas/toy" / recipe().key).iterdir() if p.is_dir()]) == 1


def with_parts(**parts: Output) -> Callable[[Attempt], Result]:
    def build(attempt: Attempt) -> Result:
        return dataclasses.replace(write_text("春江潮水连海平")(attempt), references=parts)

    return build


def a_part(store: FileStore, text: str) -> Output:
    made = commit_once(store, recipe("part", text=text), write_text(text))
    assert made is not None
    return made


def test_force_with_equal_content_and_new_parts_names_them_and_every_older_reference_still_opens(
    store: FileStore, output: Output
) -> None:
    part = a_part(store, "潮")
    again = commit_once(store, recipe(), with_parts(noise=part), force=True)
    assert again is not None and again.part("noise").reference == part.reference
    assert again.content_digest == output.content_digest and again.reference != output.reference
    folder = store.root / "cas/toy" / recipe().key
    assert [p.name for p in folder.iterdir() if p.is_dir()] == [output.manifest.attempt], "nothing twice"
    kept = (folder / f"MANIFEST-{output.reference.manifest_sha256[:12]}.json").read_bytes()
    assert hashlib.sha256(kept).hexdigest() == output.reference.manifest_sha256
    check_present(store, [output, again])  # who had opened the older one goes on
    assert open_reference(store, output.reference).part("noise").reference == part.reference
    assert output.path("text.txt").read_text(encoding="utf-8") == "春江潮水连海平"


def test_a_part_that_force_did_not_make_again_stays(store: FileStore) -> None:
    first, other = a_part(store, "潮"), a_part(store, "月")
    commit_once(store, recipe(), with_parts(noise=first, clean=first))
    for parts, wanted in (({}, first), ({"noise": other}, other), ({"noise": other}, other)):
        made = commit_once(store, recipe(), with_parts(**parts), force=True)
        assert made is not None and made.part("noise").reference == wanted.reference
        assert made.part("clean").reference == first.reference
    folder = store.root / "cas/toy" / recipe().key
    assert len(list(folder.glob("MANIFEST-*.json"))) == 1, "the same parts again change nothing"


def test_without_force_the_first_ones_parts_stay(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module.Lease, "check", lambda self: None)  # the check came too early
    part = a_part(store, "潮")

    def slow(attempt: Attempt) -> Result:
        take_over(store, "春江潮水连海平")(attempt)
        return with_parts(noise=part)(attempt)

    made = commit_once(store, recipe(), slow)
    assert made is not None and not made.manifest.references


@pytest.mark.parametrize("keep", [0, -2])
def test_a_truncated_manifest_is_refused_and_force_mends_it(
    store: FileStore, output: Output, keep: int
) -> None:
    path = store.root / output.reference.manifest_uri
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"damaged manifest.*run the stage that made it again, with --force"):
        commit_once(store, recipe(), never)
    for _ in range(2):  # twice, as the damaged one is kept beside it
        made = commit_once(store, recipe(), write_text("春江潮水连海平"), force=True)
        assert made is not None and made.content_digest == output.content_digest


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_key_whose_file_is_gone_or_short_is_made_again(
    store: FileStore, output: Output, damage: Callable[[Path], object]
) -> None:
    damage(output.path("text.txt"))
    made = commit_once(store, recipe(), write_text("春江潮水连海平"))
    assert made is not None and made.missing() is None
    assert made.content_digest == output.content_digest


def test_a_kill_before_any_write_of_a_forced_commit_does_not_block_the_next_try(
    store: FileStore, output: Output
) -> None:
    def killed(moment: int) -> None:
        die_at_write(moment)
        commit_once(store, recipe(), write_text(f"{moment}"), force=True)

    codes: list[int | None] = []
    while not codes or codes[-1] != 0:
        child = multiprocessing.get_context("fork").Process(target=killed, args=(len(codes),))
        child.start()
        child.join()
        codes.append(child.exitcode)
        made = commit_once(store, recipe(), write_text(f"{codes}"), force=True)
        assert made is not None and made.path("text.txt").read_text(encoding="utf-8") == f"{codes}"
    assert codes == [*[-signal.SIGKILL] * (len(codes) - 1), 0] and len(codes) > 4


def test_a_paused_output_is_not_committed_and_its_lease_is_free_again(store: FileStore) -> None:
    assert (
        commit_once(
            store,
            recipe(),
            lambda attempt: Result(counts={}, pause=Pause(where="step 3 of 9", why="--max-seconds 1")),
        )
        is None
    )
    assert commit_once(store, recipe(), write_text("续"), wait_seconds=0.01) is not None


def test_a_failed_work_leaves_no_file_and_no_lease(store: FileStore) -> None:
    def fail(attempt: Attempt) -> Result:
        attempt.write("text.txt", "x")
        raise DataError("no good")

    with pytest.raises(DataError, match="no good"):
        commit_once(store, recipe(), fail)
    assert not [info for info in store.list("") if info.name.startswith("cas/")]
    assert commit_once(store, recipe(), write_text("好"), wait_seconds=0.01) is not None


def test_an_attempt_refuses_hostile_file_names_before_making_a_folder(store: FileStore) -> None:
    def build(attempt: Attempt) -> Result:
        attempt.path("../up.txt")
        return Result(counts={})

    with pytest.raises(DataError, match="refused object name"):
        commit_once(store, recipe(), build)
    assert not (store.root / "cas/toy/up.txt").exists()


def test_options_inputs_and_revision_change_the_key_and_records_do_not_change_the_digest(
    store: FileStore, output: Output
) -> None:
    base: dict[str, Any] = {"stage": "toy", "revision": 1, "semantic": {"a": 1}, "inputs": {}}
    keys = {
        Recipe(**base).key,
        Recipe(**{**base, "revision": 2}).key,
        Recipe(**{**base, "semantic": {"a": 2}}).key,
        Recipe(**{**base, "inputs": {"documents": output}}).key,
        Recipe(**{**base, "stage": "toys"}).key,
    }
    assert len(keys) == 5
    assert Recipe(**{**base, "run_id": "r", "execution": {"workers": 9}}).key == Recipe(**base).key
    assert Recipe(**{**base, "inputs": {"documents": None}}).key == Recipe(**base).key

    def other_record(attempt: Attempt) -> Result:
        attempt.write("text.txt", "春江潮水连海平")
        attempt.write("log.txt", "another record", role="record")
        return Result(counts={"characters": 7}, metadata={"seconds": 3})

    made = commit_once(store, recipe(other=1), other_record)
    assert made is not None and made.content_digest == output.content_digest


def test_keys_do_not_change_between_versions_of_yanmo() -> None:
    key = Recipe(stage="toy", revision=1, semantic={"名": "诗", "x": 3e-4, "n": 2}, inputs={}).key
    assert key == "e62828f9e3cfdc2432deabe93b08a32391ab96af6ede54cf859124ca59bf53ba", (
        "a changed key format makes every store's outputs again"
    )


def test_the_store_can_be_moved(store: FileStore, output: Output, tmp_path: Path) -> None:
    moved = store.root.rename(tmp_path / "elsewhere")
    found = find_output(FileStore(moved), "toy", recipe().key)
    assert found is not None and found.path("text.txt").is_file()
    assert found.reference == output.reference


def test_a_manifest_that_no_reader_would_take_is_not_committed(store: FileStore) -> None:
    def build(attempt: Attempt) -> Result:
        return dataclasses.replace(write_text("春")(attempt), metadata={"why": "x" * MAX_DOCUMENT_BYTES})

    with pytest.raises(DataError, match=r"the manifest of this run: damaged manifest .*expected at most"):
        commit_once(store, recipe(), build)
    assert find_output(store, "toy", recipe().key) is None
