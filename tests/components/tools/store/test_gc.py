"""gc: what it takes, what it can never take, and that a kill or a run beside it changes nothing of that."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from ground import RAW, Ground, folder_of, work_of
from killed_writes import die_at_write

from yanmo.common.errors import ExitCode, StorageError
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.durable_files import temporary_file
from yanmo.store.objects import Leftover
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.auto_record import AUTO_RECORD, AutoRecord
from yanmo.store.runs.in_use import announce, check_present, work_name
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.run_record import add_to_run, note_night, read_night
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    OPEN,
    OUTDATED,
    TRAINED,
    Training,
    change_unfinished,
)
from yanmo.tools.store.gc_planner import SETTLED_SECONDS, Ages, Planner
from yanmo.tools.store.gc_sweep import BATCH, Sweep, Swept
from yanmo.tools.store.inventory import take

ROOT = Path(__file__).parents[4]
BUSY = Path(__file__).parent / "busy_writer.py"


def is_there(ground: Ground, output: Output) -> bool:
    found = open_reference(ground.store, output.reference)
    return found.missing() is None


def test_all_that_a_pointer_or_its_history_rests_on_stays(ground: Ground) -> None:
    ground.chain()
    assert ground.gc().code == 0
    assert all(is_there(ground, output) for output in ground.outputs.values())
    assert ground.tool("verify").code == 0
    assert not ground.names("runs"), "leases and input lists of finished runs go"


def test_the_newest_runs_of_each_channel_keep_what_they_name_and_champions_stay_for_ever(
    ground: Ground,
) -> None:
    ground.chain()
    nights = [ground.commit("train", seed=seed, text=f"夜{seed}") for seed in range(5, 9)]
    for number, night in enumerate(nights):
        add_to_run(ground.store, "demo", f"night-{number}", {"train": night.reference})
        wait_until_old(ground)
    other = ground.commit("train", seed=20, text="别")
    add_to_run(ground.store, "dev", "only", {"train": other.reference})
    wait_until_old(ground)
    assert ground.gc("--keep-runs", "2", age="7d").code == 0, "all are young"
    assert [is_there(ground, night) for night in nights] == [True] * 4
    shown = ground.tool("gc", "--older-than", "0", "--keep-runs", "2").out
    assert "would remove 2 object(s)" in shown and "the record of a run" in shown
    assert ground.gc("--keep-runs", "2").code == 0
    left = ground.names("pointers/demo/runs")
    assert left == [f"pointers/demo/runs/night-{number}.json" for number in (2, 3)]
    assert not any(ground.names(folder_of(night)) for night in nights[:2])
    assert [is_there(ground, output) for output in (*nights[2:], other)] == [True] * 3
    assert all(is_there(ground, output) for output in ground.outputs.values()), "old champions as well"
    assert ground.tool("verify").code == 0
    assert ground.gc().code == 0
    assert not ground.names("pointers/demo/runs") and not ground.names(folder_of(nights[3]))
    assert all(is_there(ground, output) for output in ground.outputs.values())


def test_what_the_newest_output_was_made_of_file_by_file_stays_however_old(ground: Ground) -> None:
    """The next night reads only new files; what an output before the newest was made of goes."""
    files = [ground.commit("map", seed=seed, text=f"卷{seed}") for seed in range(3)]

    def curated(number: int, used: list[Output]) -> Output:
        def build(attempt: Attempt) -> Result:
            attempt.write("content.txt", f"第{number}夜")
            return Result(counts={}, references={"evaluation_set": files[0]}, used=used)

        made = commit_once(
            ground.store, Recipe(stage="curate", revision=1, semantic={"n": number}, inputs={}), build
        )
        assert made is not None
        move_pointer(ground.store, "main", "curate", made.reference)
        return made

    curated(1, files)
    newest = curated(2, files[:2])
    assert ground.gc().code == 0
    assert [bool(ground.names(folder_of(one))) for one in files] == [True, True, False]
    assert ground.names(work_of(newest)) == [f"{work_of(newest)}/INPUTS.json"]
    assert ground.gc().code == 0 and ground.names(folder_of(files[1])), "and at every later gc"
    assert ground.tool("verify").code == 0


def test_a_run_that_is_tried_again_during_gc_keeps_its_record_and_outputs(ground: Ground) -> None:
    ground.chain()
    night = ground.commit("train", seed=5, text="夜")
    later = ground.commit("train", seed=6, text="晓")
    add_to_run(ground.store, "demo", "night-1", {"train": night.reference})
    wait_until_old(ground)
    plan = Planner(ground.store, take(ground.store), Ages(0.0, 0.0)).decide()
    assert [info.name for info in plan.runs] == ["pointers/demo/runs/night-1.json"]
    add_to_run(ground.store, "demo", "night-1", {"writing": later.reference})
    Sweep(ground.store, plan).run()
    assert is_there(ground, night) and is_there(ground, later)
    assert ground.tool("verify").code == 0


def wait_until_old(ground: Ground) -> None:
    """Until what was written last is old enough to go, and older than what comes next."""
    newest = max(info.modified for info in ground.store.list("pointers"))
    while ground.store.clock() - newest < SETTLED_SECONDS:
        time.sleep(0.1)


def test_an_output_that_nothing_refers_to_goes_with_all_its_files(ground: Ground) -> None:
    ground.chain()
    lost = ground.unwanted()
    result = ground.gc()
    assert result.code == 0 and f"train/{lost.manifest.key[:12]}" in result.out
    assert not ground.names(folder_of(lost)) and not ground.names(work_of(lost))
    assert ground.tool("verify").code == 0


def test_by_default_nothing_is_removed_and_nothing_young_would_be(ground: Ground) -> None:
    ground.chain()
    ground.unwanted()
    before = ground.names()
    result = ground.tool("gc")
    assert result.code == 0 and re.search(
        r"nothing to remove: 0 .* \d others are younger than 7 d", result.out
    )
    assert "would remove output train/" in ground.tool("gc", "--older-than", "0").out
    assert ground.gc(age="7d").code == 0
    assert ground.names() == before


def test_a_record_of_auto_stays_as_long_as_its_key_and_goes_with_it(ground: Ground) -> None:
    ground.chain()
    needed, lost = ground.outputs["model"], ground.unwanted()

    def record(digit: str, stage: str, key: str) -> str:
        name = f"runs/{stage}/auto/{digit * 64}.json"
        ground.write(name, AUTO_RECORD.to_json(AutoRecord(stage=stage, key=key, options={"ranks": 2})))
        return name

    kept = record("1", "train", needed.manifest.key)
    gone = [record("2", "train", lost.manifest.key), record("3", "train", "e" * 64)]
    ground.write(f"runs/train/{'f' * 64}/checkpoints/step-1/rank.safetensors")
    paused = record("4", "train", "f" * 64)
    damaged = f"runs/train/auto/{'5' * 64}.json"
    ground.write(damaged, b"{}")
    everything = {kept, paused, damaged, *gone}
    assert ground.gc(age="7d").code == 0
    assert everything <= set(ground.names("runs")), "all young"
    time.sleep(2.1)  # SETTLED_SECONDS
    assert ground.gc("--abandoned", "30d").code == 0
    assert {name for name in ground.names("runs") if "/auto/" in name} == {kept, paused, damaged}
    assert ground.tool("ls").code == 0 and ground.tool("verify").code == 0
    assert "not of the store's making" not in ground.tool("ls").out


def test_debris_of_every_kind_goes(ground: Ground) -> None:
    ground.chain()
    model = ground.outputs["model"]
    debris = [
        f"{folder_of(model)}/0123456789ab/half.bin",
        f"cas/train/{'a' * 64}/0123456789ab/half.bin",
        f"{work_of(model)}/checkpoints/step-1/rank.safetensors",
        "kfp/run-20261120-030000-01234567/train/model",
        "kfp/run-20261120-030000-01234567/kfp.log",
    ]
    for name in debris:
        ground.write(name)
    time.sleep(2.1)  # what no lease guards must be at rest for two seconds
    assert ground.gc().code == 0
    assert not set(debris) & set(ground.names())
    assert is_there(ground, model)


def test_files_of_yanmo_run_stay_while_it_lives_however_old_and_go_when_it_ended(ground: Ground) -> None:
    ground.chain()
    live, ended, begins = (f"kfp/run-20261120-030000-0000000{n}" for n in range(3))
    for run in (live, ended, begins):
        ground.write(f"{run}/train/model")
    leases = {run: Lease(ground.store, f"{run}/LEASE.json", "a") for run in (live, ended, begins)}
    assert leases[live].acquire() and leases[ended].acquire()
    leases[ended].release()
    time.sleep(2.1)  # SETTLED_SECONDS
    plan = Planner(ground.store, take(ground.store), Ages(0.0, 0.0)).decide()
    assert leases[begins].acquire(), "after the look, before the removal"
    swept = Sweep(ground.store, plan).run()
    stayed = {f"{run}/{name}" for run in (live, begins) for name in ("LEASE.json", "train/model")}
    assert set(ground.names("kfp")) == stayed
    assert swept.spared == [f"{begins}: `yanmo run` is at work"]
    for run in (live, begins):
        leases[run].release()
    time.sleep(2.1)
    assert ground.gc().code == 0 and not ground.names("kfp")


def test_what_a_run_of_a_pipeline_made_stays_while_a_stage_of_it_is_at_work(ground: Ground) -> None:
    """A training of eight days, a gc of seven: the stages after it get what those before it made."""
    curated = ground.commit("curate", text="集")
    add_to_run(ground.store, "demo", "long", {"curate": curated.reference})
    note = {"channel": "demo", "run_id": "long"}
    lease = Lease(ground.store, f"runs/train/{'a' * 64}/LEASE.json", "a", note=note)
    assert lease.acquire()
    wait_until_old(ground)
    assert ground.gc().code == 0 and is_there(ground, curated)
    lease.release()
    assert ground.gc().code == 0 and not ground.names(folder_of(curated))


@pytest.mark.parametrize(("silent_hours", "stays"), [(1, True), (23, True), (25, False)])
def test_what_a_run_made_stays_as_long_as_its_pod_was_heard_of_within_the_age(
    folder_ground: Ground, silent_hours: int, stays: bool
) -> None:
    """Of a pod of the cluster there is only its lease: a frozen node renews none, and the run goes on."""
    ground, now = folder_ground, time.time()
    curated = ground.commit("curate", text="集")
    add_to_run(ground.store, "demo", "long", {"curate": curated.reference})
    for path in Path(ground.uri).glob("**/*"):
        os.utime(path, (now - 8 * 86400, now - 8 * 86400))
    lease = {"owner": "it", "attempt": "a", "ttl_seconds": 60, "expires_at": now, "machine": "pod/1/1"}
    lease |= {"pid": 1, "process_start": "1", "since": now, "note": {"channel": "demo", "run_id": "long"}}
    place = f"runs/train/{'a' * 64}/LEASE.json"
    ground.write(place, json.dumps(lease).encode())
    os.utime(Path(ground.uri) / place, (now - silent_hours * 3600,) * 2)
    assert ground.gc(age="1d").code == 0
    assert bool(ground.names(folder_of(curated))) == stays


def test_a_probe_that_a_slow_server_may_still_answer_stays(folder_ground: Ground) -> None:
    name = f"probes/{'0' * 32}"
    folder_ground.write(name)
    os.utime(Path(folder_ground.uri) / name, (time.time() - 3500,) * 2)
    assert folder_ground.gc().code == 0 and folder_ground.names("probes") == [name]
    os.utime(Path(folder_ground.uri) / name, (time.time() - 3700,) * 2)
    assert folder_ground.gc().code == 0 and not folder_ground.names("probes")


def test_in_a_bucket_that_others_use_only_what_has_our_form_goes(ground: Ground) -> None:
    ground.chain()
    theirs = [
        "runs/notes/README.md",
        "runs/train/unfinished/notes.md",
        f"runs/my notes/{'a' * 64}/x".replace(" ", "."),
        "kfp/README.md",
        "kfp/run-1/notes.md",
        "probes/pictures/mars.jpg",
        "cas/README.md",
        "v2/artifacts/pipeline/run/model",
        f"sources/{'b' * 64}.txt",
    ]
    for name in (*theirs, "report.html"):  # the last is the page of `yanmo run`
        ground.write(name)
    time.sleep(2.1)
    assert "not of the store's making: 9 object(s), cas/README.md" in ground.tool("ls").out
    assert ground.gc().code == 0
    assert set(theirs) <= set(ground.names())


def test_uploads_and_temporary_files_of_others_stay(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.chain()
    gone: list[str] = []
    theirs = ["v2/artifacts/model", "runs/notes/big.bin", "kfp/run-1/big.bin", "pointers/demo/big.bin"]
    ours = [f"cas/train/{'a' * 64}/0123456789ab/model.safetensors", f"runs/train/{'a' * 64}/step-1"]
    found = [
        Leftover(n, "unfinished upload", 0, 0.0, functools.partial(gone.append, n)) for n in theirs + ours
    ]
    monkeypatch.setattr(type(ground.store), "leftovers", lambda store: iter(found))
    assert ground.gc().code == 0
    assert sorted(gone) == sorted(ours)


def test_the_work_of_an_unfinished_run_and_its_inputs_stay_until_it_is_abandoned(ground: Ground) -> None:
    documents = ground.commit("documents", inputs={"sources": RAW})
    recipe = Recipe(stage="train", revision=1, semantic={}, inputs={"documents": documents})
    announce(ground.store, "train", recipe.key, recipe.outputs)
    checkpoint = f"runs/train/{recipe.key}/checkpoints/step-1"
    ground.write(checkpoint)
    assert ground.gc().code == 0
    assert checkpoint in ground.names() and is_there(ground, documents)
    assert ground.gc("--abandoned", "0").code == 0
    assert ground.names("runs") == [] and ground.names("cas") == []


@pytest.mark.parametrize("state", [OPEN, TRAINED, GIVEN_UP, LEFT, OUTDATED])
def test_a_training_that_a_channel_has_not_finished_outlives_the_tightest_gc(
    ground: Ground, state: str
) -> None:
    """Its data, its checkpoints or its model: the next run finishes it, however long it had to wait."""
    documents = ground.commit("documents", inputs={"sources": RAW})
    recipe = Recipe(stage="train", revision=1, semantic={}, inputs={"token_cache": documents})
    model = None
    if state == TRAINED:  # killed before any pointer named it
        model = commit_once(ground.store, recipe, model_of("weights"))
    else:
        announce(ground.store, "train", recipe.key, recipe.outputs)
        ground.write(f"runs/train/{recipe.key}/checkpoints/step-1")
    training = Training(
        key=recipe.key, revision=1, options={}, execution={}, run_id="night-1", state=state,
        inputs={"token_cache": documents.reference, "model": None},
    )  # fmt: skip
    change_unfinished(ground.store, "main", lambda record: record.with_(training))
    note_night(ground.store, "main", "night-1", {"schedule": "nightly"})
    wait_until_old(ground)

    def stays() -> list[bool]:
        work = bool(ground.names(f"runs/train/{recipe.key}/checkpoints"))
        return [is_there(ground, documents), is_there(ground, model) if model else work]

    assert ground.gc("--abandoned", "30d").code == 0
    assert stays() == [True, True]
    assert ground.gc("--abandoned", "0").code == 0
    if state in (OPEN, TRAINED):
        assert stays() == [True, True]
        assert read_night(ground.store, "main", "night-1") == {"schedule": "nightly"}, (
            "which says whose it is"
        )
    else:
        assert ground.names("cas") == [], "what nobody finishes by itself is nobody's after --abandoned"
    assert ground.tool("verify").code == 0
    change_unfinished(ground.store, "main", lambda record: record.without(recipe.key))
    assert ground.gc("--abandoned", "0").code == 0 and ground.names("cas") == [], "once it is judged"


def model_of(text: str) -> Callable[[Attempt], Result]:
    def build(attempt: Attempt) -> Result:
        attempt.write("model", text)
        return Result(counts={})

    return build


def test_a_live_run_keeps_its_attempt_its_work_and_what_it_reads(ground: Ground) -> None:
    documents = ground.commit("documents", inputs={"sources": RAW})
    recipe = Recipe(stage="train", revision=1, semantic={}, inputs={"documents": documents})
    lease = Lease(ground.store, f"runs/train/{recipe.key}/LEASE.json", "0123456789ab")
    assert lease.acquire()
    announce(ground.store, "train", recipe.key, recipe.outputs)
    half = f"cas/train/{recipe.key}/0123456789ab/half.bin"
    ground.write(half)
    assert ground.gc("--abandoned", "0").code == 0
    assert half in ground.names() and is_there(ground, documents)
    lease.check()
    lease.release()
    assert ground.gc("--abandoned", "0").code == 0
    assert ground.names("cas") == []


def test_a_manifest_that_force_replaced_stays_while_a_reference_pins_it(ground: Ground) -> None:
    ground.chain()
    model = ground.outputs["model"]
    cache = ground.outputs["cache"]
    ground.commit("train", inputs={"cache": cache}, seed=1, text="重做", force=True)
    assert ground.gc().code == 0
    champion = open_reference(ground.store, model.reference)
    assert champion.path("content.txt").read_text(encoding="utf-8") == "新"
    assert is_there(ground, ground.commit("train", inputs={"cache": cache}, seed=1))


def test_a_part_that_force_added_later_stays_and_so_does_what_pins_the_older_manifest(
    ground: Ground, tmp_path: Path
) -> None:
    """A model gets its seed's noise after it was evaluated: the evaluation pins the manifest without it."""
    ground.chain()
    model, cache = ground.outputs["model"], ground.outputs["cache"]
    evaluation = ground.commit("evaluate", inputs={"model": model})
    move_pointer(ground.store, "demo", "evaluate", evaluation.reference)
    noise = ground.commit("seed_noise", text="噪")
    again = ground.commit(
        "train", inputs={"cache": cache}, seed=1, text="新", parts={"noise": noise}, force=True
    )
    assert again.manifest.attempt == model.manifest.attempt and again.reference != model.reference
    for _ in range(2):
        assert ground.gc("--abandoned", "0").code == 0
        assert ground.tool("verify").code == 0
        measured = open_reference(ground.store, evaluation.reference).input("model")
        assert measured is not None and measured.missing() is None
        assert measured.part("noise").path("content.txt").read_text(encoding="utf-8") == "噪"
    target = Ground(str(tmp_path / "target"))
    copied = ground.tool("cp", "demo/evaluate", "--to", target.uri, "--pointer", "demo/evaluate")
    assert copied.code == 0
    assert target.tool("verify").code == 0, target.tool("verify").out
    assert target.gc().code == 0 and is_there(target, noise)


def after_set_aside(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Do `action` when gc has set manifests aside and is about to look who needs them."""
    real, looks = Sweep._needed_now, 0

    def look(sweep: Sweep) -> object:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first is before anything is set aside
            action()
        return real(sweep)

    monkeypatch.setattr(Sweep, "_needed_now", look)


def beside_gc(monkeypatch: pytest.MonkeyPatch, ground: Ground, recipe: Recipe) -> Future[None]:
    """A run of `recipe` that begins when gc has set its inputs aside, and waits for what gc decides."""
    run: Future[None] = Future()

    def announced() -> None:
        try:
            run.set_result(announce(ground.store, "next", recipe.key, recipe.outputs))
        except BaseException as error:
            run.set_exception(error)

    def meanwhile() -> None:
        threading.Thread(target=announced).start()
        name = f"{work_name('next', recipe.key)}/INPUTS.json"
        while ground.store.stat(name) is None and not run.done():
            time.sleep(0.01)
        time.sleep(0.3)
        assert not run.done(), "it waits"

    after_set_aside(monkeypatch, meanwhile)
    return run


def test_a_pointer_that_moves_to_an_output_during_gc_keeps_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, lost = ground.unwanted(), ground.commit("other", inputs={"sources": RAW})
    consumer = ground.commit("next", inputs={"documents": wanted})

    def meanwhile() -> None:
        assert open_reference(ground.store, wanted.reference).missing() is None, "who reads it goes on"
        move_pointer(ground.store, "dev", "next", consumer.reference)

    after_set_aside(monkeypatch, meanwhile)
    result = ground.gc()
    assert result.code == 0 and "something refers to it now" in result.out
    assert is_there(ground, consumer) and is_there(ground, wanted)
    assert not ground.names(folder_of(lost))
    assert ground.tool("verify").code == 0
    assert not [name for name in ground.names() if "MANIFEST-" in name]


def test_a_run_that_begins_during_gc_keeps_its_inputs(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ground.unwanted()
    recipe = Recipe(stage="next", revision=1, semantic={}, inputs={"documents": wanted})

    run = beside_gc(monkeypatch, ground, recipe)
    assert ground.gc().code == 0
    run.result()
    assert is_there(ground, wanted)


def test_a_failed_run_that_begins_again_between_plan_and_sweep_keeps_its_inputs(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ground.unwanted()
    recipe = Recipe(stage="next", revision=1, semantic={}, inputs={"documents": wanted})
    name = f"{work_name('next', recipe.key)}/LEASE.json"
    first, again = (Lease(ground.store, name, attempt) for attempt in ("0123456789ab", "ba9876543210"))
    assert first.acquire()
    announce(ground.store, "next", recipe.key, recipe.outputs)
    first.release()
    real = Sweep.run

    def run(sweep: Sweep) -> Swept:
        assert {one.folder.name for one in sweep.plan.to_delete} >= {("next", recipe.key)}, (
            "its debris was to go"
        )
        assert again.acquire()
        announce(ground.store, "next", recipe.key, recipe.outputs)
        return real(sweep)

    monkeypatch.setattr(Sweep, "run", run)
    result = ground.gc()
    assert result.code == 0 and "a run makes it" in result.out
    again.check()
    check_present(ground.store, [wanted])
    assert is_there(ground, wanted)
    again.release()


def test_inputs_of_dead_work_go_however_many_keys_there_are(folder_ground: Ground) -> None:
    for number in range(BATCH + 1):  # debris first: an output that it names is of a later batch
        wanted = folder_ground.commit("one", number=number)
        recipe = Recipe(stage="next", revision=1, semantic={"number": number}, inputs={"documents": wanted})
        announce(folder_ground.store, "next", recipe.key, recipe.outputs)
    assert folder_ground.gc().code == 0
    assert folder_ground.names() == []


def replaced(ground: Ground) -> tuple[Output, Output]:
    """An output, opened, and what --force then put in its place; a pointer names the latter."""
    first = ground.commit("train", inputs={"sources": RAW}, text="初")
    second = ground.commit("train", inputs={"sources": RAW}, text="再", force=True)
    move_pointer(ground.store, "dev", "model", second.reference)
    return first, second


def test_what_force_replaced_stays_as_long_as_the_output_of_its_key_and_goes_with_it(ground: Ground) -> None:
    first, second = replaced(ground)
    assert ground.gc().code == 0
    check_present(ground.store, [first, second])
    assert first.path("content.txt").read_text(encoding="utf-8") == "初"
    assert ground.tool("verify").code == 0
    ground.store.delete("pointers/dev/model.json")
    assert ground.gc().code == 0
    assert not ground.names(folder_of(first)) and not ground.names("runs")
    with pytest.raises(StorageError, match="removed by `yanmo store gc`"):
        check_present(ground.store, [first])


@pytest.mark.parametrize("is_set_aside", [False, True])
def test_a_gc_that_lost_its_lease_leaves_the_key_to_the_run_that_took_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, is_set_aside: bool
) -> None:
    """A laptop that slept beyond its time to live, before it set the manifest aside or after."""
    lost, other = ground.unwanted(), ground.commit("other", inputs={"sources": RAW})
    real, looks = Sweep._needed_now, 0

    def look(sweep: Sweep) -> object:
        nonlocal looks
        looks += 1
        if looks == 1 + is_set_aside:
            lease = sweep._held["train", lost.manifest.key]
            ground.store.replace(lease.name, b'{"owner": "a run"}', ground.store.read(lease.name)[1])
        return real(sweep)

    monkeypatch.setattr(Sweep, "_needed_now", look)
    result = ground.gc()
    assert result.code == 0 and "a run took it over" in result.out
    assert not ground.names(folder_of(other)), "the rest of the batch goes"
    assert is_there(ground, lost)
    assert (ground.store.stat(lost.reference.manifest_uri) is None) == is_set_aside
    assert ground.store.stat(f"{work_of(lost)}/LEASE.json") is not None, "the lease is the run's"


def test_a_manifest_that_changed_under_gc_is_not_set_aside(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ground.unwanted()
    real = Sweep._needed_now

    def look(sweep: Sweep) -> object:
        name = lost.reference.manifest_uri
        data, version = ground.store.read(name)
        if data.endswith(b"}\n"):
            ground.store.replace(name, data[:-1], version)
        return real(sweep)

    monkeypatch.setattr(Sweep, "_needed_now", look)
    assert "a run took it over" in ground.gc().out
    assert ground.store.stat(lost.reference.manifest_uri) is not None
    assert ground.store.sizes([f"{folder_of(lost)}/{lost.manifest.attempt}/content.txt"]) != [None]


def test_what_a_killed_gc_set_aside_is_restored_if_it_is_needed_again(ground: Ground) -> None:
    output = ground.unwanted()
    data, _ = ground.store.read(output.reference.manifest_uri)
    ground.write(f"{folder_of(output)}/MANIFEST-{output.reference.manifest_sha256[:12]}.json", data)
    ground.store.delete(output.reference.manifest_uri)
    move_pointer(ground.store, "dev", "model", output.reference)
    result = ground.gc()
    assert result.code == 0 and "restored" in result.out
    assert is_there(ground, output) and ground.tool("verify").code == 0


def gc_that_kills_itself(uri: str, moment: int) -> None:
    """Runs in a process of its own, which ends before its write number `moment`."""
    die_at_write(moment)
    sys.exit(Ground(uri).gc().code)


def killed_gc(ground: Ground, moment: int) -> int:
    process = multiprocessing.get_context("fork").Process(
        target=gc_that_kills_itself, args=(ground.uri, moment)
    )
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


@pytest.mark.long
def test_a_gc_killed_before_any_of_its_writes_leaves_a_store_that_verifies(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    documents = ground.unwanted()
    ground.commit("next", inputs={"documents": documents})
    replaced(ground)
    for moment in range(100):
        code = killed_gc(ground, moment)
        assert code in (0, -signal.SIGKILL)
        assert ground.tool("verify").code == 0, f"killed before write {moment}"
        if code == 0:
            break
    else:
        pytest.fail("gc never came to its end")
    assert moment > 5, "it was killed at several moments"
    assert not ground.names(folder_of(documents)) and not ground.names("runs")
    assert not list(ground.store.leftovers())


@pytest.mark.long
def test_gc_beside_a_busy_writer_loses_nothing(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    command = [sys.executable, str(BUSY), ground.uri, "4"]
    writers = [
        subprocess.Popen([*command, str(n)], env=env, stdout=subprocess.PIPE, text=True) for n in range(2)
    ]
    rounds = 0
    while any(writer.poll() is None for writer in writers):
        assert ground.gc().code in (0, ExitCode.RETRY)
        rounds += 1
    said = [writer.communicate()[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert rounds >= 2 and not [text for text in said if "lost" in text], said
    assert ground.tool("verify").code == 0
    assert all(is_there(ground, output) for output in ground.outputs.values())


def test_two_gcs_at_once_do_the_work_once_and_both_end_well(ground: Ground) -> None:
    ground.chain()
    lost = [ground.commit("other", inputs={"sources": RAW}, number=n) for n in range(6)]
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(ground.gc().code)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0, 0]
    assert not any(ground.names(folder_of(output)) for output in lost)
    assert ground.tool("verify").code == 0


@pytest.mark.parametrize("age", ["", "7", "7 d", "-1d", "d", "1y", "nan"])
def test_an_age_without_a_unit_is_a_usage_error(folder_ground: Ground, age: str) -> None:
    assert folder_ground.tool("gc", f"--older-than={age}").code == ExitCode.USAGE


def test_a_leftover_of_a_living_writer_is_not_removed(folder_ground: Ground) -> None:
    store = folder_ground.chain().folder
    dead, alive = store.root / "pointers/demo/.tmp-dead", store.root / "pointers/demo/.tmp-alive"
    dead.write_bytes(b"1")
    with temporary_file(alive.with_name("champion.json"), b"2") as temporary:
        time.sleep(2.1)
        assert folder_ground.gc().code == 0
        assert temporary.exists() and not dead.exists()
    assert json.loads((store.root / "pointers/demo/champion.json").read_text())["stage"] == "train"
