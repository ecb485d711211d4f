"""A store that is restored from a copy, whose pointers name what the copy does not hold: folder and S3."""

from __future__ import annotations

import itertools
import json
import re
import signal

import pytest
from ground import RAW, Ground, folder_of
from killed_writes import forked_store_command

from yanmo.store.channel.held import Entry, days_from, put, read_held
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.run_record import add_to_run
from yanmo.store.schema import utc_now


@pytest.fixture
def nights(ground: Ground) -> list[Output]:
    """Four nights of the channel `main`; the first, second and fourth brought a champion."""
    documents = ground.commit("documents", inputs={"sources": RAW})
    held_out = ground.commit("evaluation_set", text="考")
    move_pointer(ground.store, "main", "evaluation_set", held_out.reference)
    made: list[Output] = []
    for night in range(1, 5):
        model = ground.commit("train", inputs={"documents": documents}, seed=night, text=f"第{night}夜")
        scores = ground.commit("evaluate", inputs={"model": model}, text=f"分{night}")
        verdict = ground.commit("promote", inputs={"challenger": scores}, text=f"判{night}")
        run = {"train": model.reference, "evaluate": scores.reference, "promote": verdict.reference}
        for pointer, reference in run.items():
            move_pointer(ground.store, "main", pointer, reference)
        if night != 3:
            promote(ground, model, scores, verdict)
        add_to_run(ground.store, "main", f"night-{night}", run)
        made += [model, scores, verdict]
    return made


def promote(ground: Ground, model: Output, scores: Output, verdict: Output) -> None:
    number = len(ground.names("pointers/main/history")) + 1
    record = {"schema": "yanmo.promotion/1", "number": number, "champion_since": "2026-11-20T03:00:00+00:00"}
    record |= {"model": vars(model.reference), "evaluation": vars(scores.reference), "previous": None}
    record |= {"verdict": vars(verdict.reference)}
    ground.store.create(f"pointers/main/history/{number:06d}.json", json.dumps(record).encode())
    move_pointer(ground.store, "main", "champion", model.reference)
    move_pointer(ground.store, "main", "champion_evaluation", scores.reference)
    move_pointer(ground.store, "main", "champion_evaluation_writing", ground.commit("writing").reference)


def lose(ground: Ground, *outputs: Output) -> None:
    """As a copy that was taken before they were written."""
    for output in outputs:
        for name in ground.names(folder_of(output)):
            ground.store.delete(name)


def named(ground: Ground, pointer: str) -> str:
    found = read_pointer(ground.store, "main", pointer)
    return found.key if found else ""


def test_a_whole_store_is_left_as_it_is(ground: Ground, nights: list[Output]) -> None:
    before = ground.names()
    said = ground.tool("mend", "--write")
    assert said.code == 0 and said.out.startswith("nothing to mend") and ground.names() == before


def test_pointers_go_back_to_the_newest_that_is_whole_and_the_rest_is_set_aside(
    ground: Ground, nights: list[Output]
) -> None:
    lose(ground, *nights[9:])
    assert ground.tool("verify").code == 65 and ground.tool("gc").code == 65
    before = ground.names()
    planned = ground.tool("mend")
    assert planned.code == 0 and ground.names() == before, "a dry run"
    assert "--write does it" in planned.out
    mended = ground.tool("mend", "--write")
    assert mended.code == 0 and mended.out.splitlines() == planned.out.splitlines()[:-1]
    second, third = nights[3:6], nights[6:9]
    assert named(ground, "champion") == second[0].manifest.key
    assert named(ground, "champion_evaluation") == second[1].manifest.key
    assert named(ground, "champion_evaluation_writing") == "", "it was of the lost champion"
    assert [named(ground, name) for name in ("train", "evaluate", "promote")] == [
        one.manifest.key for one in third
    ]
    assert ground.names("pointers/main/history") == [f"pointers/main/history/{n:06d}.json" for n in (1, 2)]
    aside = {re.sub(r"mended/[^/]+/", "", name) for name in ground.names("mended")}
    assert aside == {
        "pointers/main/history/000003.json",
        "pointers/main/runs/night-4.json",
        "pointers/main/champion_evaluation_writing.json",
    }
    assert ground.tool("verify").code == 0 and ground.gc().code == 0
    assert ground.names("mended"), "gc keeps what is set aside"
    assert ground.tool("mend").out.startswith("nothing to mend")


def test_a_model_that_waits_for_a_person_and_is_lost_waits_no_more(
    ground: Ground, nights: list[Output]
) -> None:
    for number in (4, 3):  # the newest night's is lost, the third's is whole
        model, scores, verdict = nights[3 * number - 3 : 3 * number]
        entry = Entry(
            model=model.reference,
            evaluation=scores.reference,
            verdict=verdict.reference,
            previous=None,
            compared_with=None,
            writing=None,
            sentence=f"Night {number} won.",
            held_at=utc_now(),
            expires_at=days_from(utc_now(), 14),
            run_id=f"night-{number}",
        )
        assert put(ground.store, "main", entry, lambda before: before is None)
    lose(ground, *nights[9:])
    assert ground.tool("verify").code == 65
    before = ground.store.read("pointers/main/records/held.json")
    planned = ground.tool("mend")
    said = f"main: train/{nights[9].manifest.key[:12]} waits for a person no more: train/"
    assert planned.code == 0 and said in planned.out
    assert ground.store.read("pointers/main/records/held.json") == before, "a dry run"
    assert ground.tool("mend", "--write").code == 0
    lost, whole = read_held(ground.store, "main").entries
    assert (lost.state, whole.state) == ("withdrawn", "waiting")
    assert lost.why.startswith("yanmo store mend: lost: train/") and lost.decided_at
    assert ground.tool("verify").code == 0 and ground.gc().code == 0
    assert ground.tool("mend").out.startswith("nothing to mend")


def test_a_damaged_list_of_who_waits_is_named(ground: Ground, nights: list[Output]) -> None:
    ground.store.create("pointers/main/records/held.json", b"{torn")
    before = ground.names()
    assert ground.tool("mend", "--write").code == 65 and ground.names() == before


def test_a_file_that_is_gone_or_cut_counts_as_the_whole_output(ground: Ground, nights: list[Output]) -> None:
    model = nights[9]
    ground.store.delete(f"{folder_of(model)}/{model.manifest.attempt}/content.txt")
    assert ground.tool("mend", "--write").code == 0
    assert named(ground, "champion") == nights[3].manifest.key
    assert named(ground, "train") == nights[6].manifest.key


def test_what_nobody_can_bring_back_is_said_and_ends_with_65(ground: Ground, nights: list[Output]) -> None:
    """A former champion; the evaluation set, which only a copy can bring back."""
    held_out = read_pointer(ground.store, "main", "evaluation_set")
    lose(ground, nights[0])
    assert ground.tool("mend", "--write").code == 65
    assert len(ground.names("pointers/main/history")) == 3, "numbers have no gaps"
    assert named(ground, "champion") == nights[9].manifest.key
    assert held_out is not None
    ground.store.delete(held_out.manifest_uri)
    assert ground.tool("mend", "--write").code == 65
    assert read_pointer(ground.store, "main", "evaluation_set") == held_out


def test_without_any_whole_champion_nothing_of_the_history_moves(
    ground: Ground, nights: list[Output]
) -> None:
    lose(ground, *nights)
    assert ground.tool("mend", "--write").code == 65
    assert len(ground.names("pointers/main/history")) == 3


def test_while_a_run_is_at_work_nothing_is_done(
    ground: Ground, nights: list[Output], capsys: pytest.CaptureFixture[str]
) -> None:
    lose(ground, *nights[9:])
    lease = Lease(ground.store, lease_name("train", "a" * 64), "run")
    assert lease.acquire()
    before = ground.names("pointers")
    assert ground.tool("mend", "--write").code == 75 and ground.names("pointers") == before
    lease.release()


def test_killed_at_any_write_the_same_command_finishes_it(ground: Ground, nights: list[Output]) -> None:
    lose(ground, *nights[3:])  # two champions: their records go one after the other
    moments = itertools.chain((0, 1), itertools.repeat(2))  # a step is two writes
    kills = 0
    for moment in moments:
        code = forked_store_command(moment, "mend", "--write", "--store", ground.uri)
        numbers = [name[-11:-5] for name in ground.names("pointers/main/history")]
        assert numbers == [f"{n:06d}" for n in range(1, len(numbers) + 1)], "no gap at any moment"
        if not code:
            break
        assert code == -signal.SIGKILL
        kills += 1
    assert kills > 6 and named(ground, "champion") == nights[0].manifest.key
    assert ground.tool("verify").code == 0
