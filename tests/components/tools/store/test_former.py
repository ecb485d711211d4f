"""gc --former-data: what former champions leave, and that it still answers for them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from champions import WITH_DATA, Channel, Night, copy_of
from ground import TEXTS, Ground, ids
from killed_writes import die_at_write

from yanmo.common.errors import DataError, ExitCode
from yanmo.formats.forbidden_text import Policy, why_forbidden
from yanmo.formats.training_text import training_text
from yanmo.promote.history.champion import read_champion
from yanmo.promote.history.rollback import plan_rollback, roll_back
from yanmo.store.commit import Recipe, find_whole
from yanmo.store.let_go import data_of, record_name
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.in_use import Removed, announce
from yanmo.tools.store.gc_loose import SETTLED_SECONDS

MORE = ("人闲桂花落", "夜静春山空", "月出惊山鸟", "时鸣春涧中", "床前明月光")
GC = ("--older-than", "0", "--former-data", "0", "--delete")


@pytest.fixture
def channel(folder_ground: Ground) -> Channel:
    """Two former champions and one that is served; the last began from the second. No run is kept."""
    channel = Channel(folder_ground)
    channel.night(TEXTS, promoted=True)
    second = channel.night((*TEXTS, *MORE[:2]), promoted=True)
    channel.night((*TEXTS, *MORE), promoted=True, start=second)
    channel.days_pass(1)
    return channel


def lost_data(output: Output) -> list[bool]:
    """Of each file of the data whether it is gone."""
    return [
        size is None for size in output.store.sizes([output.wanted(e).name for e in data_of(output.manifest)])
    ]


def has_all_data(output: Output) -> bool:
    return not any(lost_data(output)) and not output.is_let_go() and output.missing() is None


def has_no_data(output: Output) -> bool:
    return all(lost_data(output)) and output.is_let_go() and bool(data_of(output.manifest))


def reopened(store: ObjectStore, output: Output) -> Output:
    return open_reference(store, output.reference)


def test_what_only_former_champions_rest_on_goes_and_a_model_that_they_became_keeps_its_texts(
    channel: Channel,
) -> None:
    ground, (first, second, third) = channel.ground, channel.nights
    said = ground.tool("gc", "--older-than", "0", "--former-data", "0")
    assert "would let go of the data of tokenize/" in said.out, said.out
    result = ground.tool("gc", *GC)
    assert result.code == 0 and "let go of the data of tokenize/" in result.out, result.out
    store = ground.store
    for stage in WITH_DATA:
        assert has_no_data(reopened(store, first.outputs[stage])), stage
        assert has_all_data(reopened(store, third.outputs[stage])), stage
        # The champion began from the second: its evaluation looks for copies in those texts.
        is_there = has_all_data if stage == "curate" else has_no_data
        assert is_there(reopened(store, second.outputs[stage])), stage
    for night in channel.nights:
        for stage in ("train", "evaluate", "promote"):
            assert reopened(store, night.outputs[stage]).paths("*")
    texts = training_text(reopened(store, third.model))
    assert not texts.gaps() and len(texts.at_hand()) == 2
    verified = ground.tool("verify")
    assert verified.code == 0 and "of 5 the data was let go" in verified.out
    assert "nothing to remove" in ground.tool("gc", *GC).out
    listed = ground.tool("ls").out
    assert listed.count(" let go ") == 5
    shown = ground.tool("show", f"tokenize/{first.outputs['tokenize'].manifest.key}").out
    assert "fault     its data was let go" in shown
    assert (
        ground.tool("diff", "main/tokenize", f"tokenize/{first.outputs['tokenize'].manifest.key}").code == 0
    )


def test_nothing_is_let_go_before_its_time_or_without_being_asked(channel: Channel) -> None:
    ground = channel.ground
    before = ground.names("cas")
    assert "let go" not in ground.gc("--abandoned", "30d").out
    assert "let go" not in ground.gc("--former-data", "2d").out
    assert ground.names("cas") == before
    channel.days_pass(1)
    assert "let go" in ground.gc("--former-data", "2d").out
    assert ground.gc("--former-data", "0", age="1d").code == ExitCode.USAGE
    assert ground.gc("--former-data", "soon").code == ExitCode.USAGE


def test_runs_that_are_kept_keep_their_data_and_name_former_champions_without_theirs(
    channel: Channel,
) -> None:
    """A verdict of a kept night names the champion of then."""
    ground, (first, second, third) = channel.ground, channel.nights
    channel.night((*TEXTS, *MORE[:3]), promoted=False)
    channel.days_pass(1)
    assert ground.tool("gc", *GC, "--keep-runs", "2").code == 0
    store = ground.store
    for night in (third, channel.nights[-1]):
        assert all(has_all_data(reopened(store, night.outputs[stage])) for stage in WITH_DATA)
    assert has_no_data(reopened(store, second.outputs["tokenize"]))
    assert has_no_data(reopened(store, first.outputs["curate"]))


def learned_by(ground: Ground, models: dict[str, Night], document: str) -> dict[str, list[str]]:
    """What `lineage` says of these models."""
    found = ground.tool("lineage", document, "--json").json[0]["learned"]
    return {how: sorted(set(found[how]) & set(models)) for how in ("directly", "by_start")}


def names(nights: list[Night]) -> dict[str, Night]:
    return {f"train/{night.model.manifest.key}": night for night in nights}


def test_lineage_and_takedowns_answer_as_before_for_former_champions(channel: Channel) -> None:
    ground, first = channel.ground, channel.nights[0]
    models = names(channel.nights)
    asked = [*ids((*TEXTS, *MORE)), *sorted(first.learned), copy_of(ids(TEXTS)[0]), "0" * 64]
    before = {one: learned_by(ground, models, one) for one in asked}
    assert before[sorted(first.learned)[0]] != before["0" * 64], "it says something"
    assert ground.tool("gc", *GC).code == 0
    assert {one: learned_by(ground, models, one) for one in asked} == before
    said = ground.tool("lineage", ids(TEXTS)[1]).out
    assert "let go since, its ids are kept" in said
    model = reopened(ground.store, first.model)
    for one in asked:
        assert bool(why_forbidden(Policy("main", None, frozenset({one})), model)) == (
            one in first.learned or one == copy_of(ids(TEXTS)[0])
        )
    assert "rests on" in ground.tool("lineage", f"train/{first.model.manifest.key}").out


def test_a_rollback_to_a_former_champion_works_and_nothing_more_of_it_goes(channel: Channel) -> None:
    ground, (first, _, third) = channel.ground, channel.nights
    assert ground.tool("gc", *GC).code == 0
    record = roll_back(ground.store, plan_rollback(ground.store, "main", 1), who="li", why="a test")
    assert record.number == 4
    found = read_champion(ground.store, "main")
    assert found and found[1].content_digest == first.model.content_digest
    channel.days_pass(1)
    assert ground.tool("gc", *GC).code == 0
    assert ground.tool("verify").code == 0
    texts = training_text(reopened(ground.store, first.model))
    assert texts.at_hand() == [] and len(texts.gaps()) == 1, "its evaluation says what cannot be searched"
    assert has_all_data(reopened(ground.store, third.outputs["tokenize"])), "the channel's newest"
    channel.champions.append(first)
    channel.night(MORE, promoted=False)
    channel.days_pass(1)
    assert ground.tool("gc", *GC).code == 0 and ground.tool("verify").code == 0
    assert has_no_data(reopened(ground.store, third.outputs["tokenize"])), "it is a former champion now"


def test_what_was_let_go_is_no_input_and_is_made_again_under_its_key(channel: Channel) -> None:
    ground, first = channel.ground, channel.nights[0]
    assert ground.tool("gc", *GC).code == 0
    store = ground.store
    for stage in WITH_DATA:
        gone = reopened(store, first.outputs[stage])
        assert find_whole(store, stage, gone.manifest.key) is None
        with pytest.raises(
            DataError, match=r"was let go by `yanmo store gc --former-data`.*run the \w+ stage"
        ):
            gone.paths("*.parquet")
        with pytest.raises(DataError, match="was let go"):
            gone.check_not_let_go()
    models = names(channel.nights)
    before = learned_by(ground, models, ids(TEXTS)[0])
    again = Channel(ground, "again").night(TEXTS, promoted=False)
    for stage in WITH_DATA:
        made, old = again.outputs[stage], first.outputs[stage]
        assert made.reference.content_digest == old.reference.content_digest
        assert made.manifest.attempt != old.manifest.attempt
        assert has_all_data(reopened(store, old)), "who names the old one finds the new one"
    assert learned_by(ground, models, ids(TEXTS)[0]) == before
    channel.days_pass(1)
    assert ground.tool("gc", *GC).code == 0 and ground.tool("verify").code == 0
    assert has_all_data(reopened(store, first.outputs["tokenize"])), "pointers of another channel name it"
    for info in store.list("pointers/again"):
        store.delete(info.name)
    assert ground.tool("gc", *GC).code == 0 and ground.tool("verify").code == 0
    assert has_no_data(reopened(ground.store, first.outputs["tokenize"]))
    assert learned_by(ground, models, ids(TEXTS)[0]) == before


def test_what_is_damaged_is_not_let_go_and_what_is_lost_stays_damage(channel: Channel) -> None:
    ground, (first, second, _) = channel.ground, channel.nights
    lost, changed = first.outputs["tokenize"], first.outputs["curate"]
    tokens, texts = (Path(ground.uri) / one.wanted(data_of(one.manifest)[0]).name for one in (lost, changed))
    tokens.unlink()
    texts.write_bytes(texts.read_bytes()[:-1] + b"?")
    result = ground.tool("gc", *GC)
    assert result.code == 0 and "spared curate/" in result.out and "its data is damaged" in result.out
    assert not lost.is_let_go() and not reopened(ground.store, changed).is_let_go()
    verified = ground.tool("verify")
    assert verified.code == ExitCode.DATA
    assert tokens.name in verified.out and texts.name in verified.out
    assert has_no_data(reopened(ground.store, second.outputs["balance"])), "the rest goes"


def test_a_damaged_record_or_table_of_ids_is_a_fault(channel: Channel) -> None:
    ground, first = channel.ground, channel.nights[0]
    assert ground.tool("gc", *GC).code == 0
    manifest = first.outputs["curate"].manifest
    record = Path(ground.uri) / record_name(manifest)
    table = next((record.parent / "let_go").iterdir())
    whole = table.read_bytes()
    table.write_bytes(whole[:-1])
    assert ground.tool("verify").code == ExitCode.DATA
    assert ground.tool("lineage", ids(TEXTS)[0]).code == ExitCode.DATA, "it might hold the text"
    table.write_bytes(whole)
    assert ground.tool("verify").code == 0
    record.write_bytes(record.read_bytes().replace(b"train-0", b"train-1"))
    verified = ground.tool("verify")
    assert verified.code == ExitCode.DATA and "LET_GO.json: damaged" in verified.out


def test_a_copy_of_a_former_champion_is_as_it_is_here(channel: Channel, tmp_path: Path) -> None:
    ground, (first, _, third) = channel.ground, channel.nights
    whole, thin = Ground(str(tmp_path / "whole")), Ground(str(tmp_path / "thin"))
    model = f"train/{first.model.manifest.key}"
    assert ground.tool("cp", model, "--to", whole.uri).code == 0
    assert ground.tool("gc", *GC).code == 0
    copied = ground.tool("cp", model, "--to", thin.uri)
    assert copied.code == 0 and "the data of 3 was let go before" in copied.out
    assert thin.tool("verify").code == 0
    assert has_no_data(reopened(thin.store, first.outputs["curate"]))
    assert "1 outputs were there" not in ground.tool("cp", model, "--to", thin.uri).out
    assert learned_by(thin, names([first]), ids(TEXTS)[1])["directly"]
    back = whole.tool("cp", model, "--to", ground.uri)
    assert back.code == 0, back.out
    assert has_all_data(reopened(ground.store, first.outputs["curate"])), "a copy brings it back"
    assert ground.tool("verify").code == 0
    assert not [name for name in ground.names("cas") if "MANIFEST-" in name]
    assert ground.tool("cp", f"train/{third.model.manifest.key}", "--to", thin.uri).code == 0
    assert thin.tool("verify").code == 0


def gc_that_kills_itself(uri: str, moment: int, how: signal.Signals, words: tuple[str, ...]) -> None:
    die_at_write(moment, how)
    sys.exit(Ground(uri).tool("gc", *words).code)


def begun_gc(
    ground: Ground, moment: int, how: signal.Signals, words: tuple[str, ...] = GC
) -> multiprocessing.process.BaseProcess:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=gc_that_kills_itself, args=(ground.uri, moment, how, words))
    process.start()
    return process


def killed_gc(ground: Ground, moment: int, words: tuple[str, ...] = GC) -> int:
    process = begun_gc(ground, moment, signal.SIGKILL, words)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def test_killed_before_any_write_the_store_verifies_and_the_next_gc_comes_to_the_same_end(
    channel: Channel,
) -> None:
    ground, nights = channel.ground, channel.nights
    models = names(nights)
    assert ground.gc().code == 0, "what is not about former champions"
    before = {one: learned_by(ground, models, one) for one in ids((*TEXTS, *MORE))}
    for moment in range(100):
        code = killed_gc(ground, moment)
        assert code in (0, -signal.SIGKILL)
        verified = ground.tool("verify")
        assert verified.code == 0, f"killed before write {moment}: {verified.out}"
        if code == 0:
            break
    else:
        pytest.fail("gc never came to its end")
    assert moment > 5, "it was killed at several moments"
    assert {one: learned_by(ground, models, one) for one in before} == before
    gone = [o for n in nights for o in n.outputs.values() if reopened(ground.store, o).is_let_go()]
    assert len(gone) == 5 and all(has_no_data(reopened(ground.store, one)) for one in gone)
    assert not list(ground.store.leftovers())


@pytest.mark.fault(few=1)
@pytest.mark.parametrize("how_far", ["tables", "record", "files"])
def test_what_a_killed_gc_began_is_taken_back_where_the_output_is_needed_again(
    channel: Channel, tmp_path: Path, how_far: str
) -> None:
    wanted = channel.nights[0].outputs["curate"]
    assert channel.ground.gc().code == 0, "what is not about former champions"
    ground, _ = killed_at(channel, tmp_path, lambda copy: reached(copy, wanted, how_far))
    move_pointer(ground.store, "dev", "curate", wanted.reference)
    said = ground.tool("gc", *GC)
    assert said.code == 0 and ground.tool("verify").code == 0
    found = reopened(ground.store, wanted)
    if how_far == "files":
        assert has_no_data(found), "it is too late"
    else:
        assert has_all_data(found) and "it was to be let go, and is needed again" in said.out
        names_now = ground.names(f"cas/curate/{wanted.manifest.key}")
        assert not [name for name in names_now if "let_go" in name.lower()]


def killed_at(channel: Channel, folder: Path, is_there: Callable[[Ground], bool]) -> tuple[Ground, int]:
    """A copy of the store whose gc was killed at the first moment that has led there; and that moment."""
    for moment in range(100):
        copy = Ground(str(folder / f"copy-{moment}"))
        shutil.copytree(channel.ground.uri, copy.uri)
        assert killed_gc(copy, moment) == -signal.SIGKILL, "it never came there"
        if is_there(copy):
            return copy, moment
    raise AssertionError("it never came there")


def reached(ground: Ground, output: Output, how_far: str) -> bool:
    """Whether a killed gc has just begun with this."""
    listed = ground.names(f"cas/curate/{output.manifest.key}")
    has_record, is_gone = (
        record_name(output.manifest) in listed,
        any(lost_data(reopened(ground.store, output))),
    )
    if how_far == "tables":
        return any("/let_go/" in name for name in listed) and not has_record
    return is_gone if how_far == "files" else has_record and not is_gone


@pytest.mark.parametrize("is_late", [False, True])
def test_a_run_that_begins_while_gc_lets_go_of_its_input_waits_for_what_gc_decides(
    channel: Channel, tmp_path: Path, is_late: bool
) -> None:
    """gc halts once it has said what it lets go of, before it looks who needs that now, or after."""
    assert channel.ground.gc().code == 0, "what is not about former champions"
    wanted, sooner = (channel.nights[0].outputs[stage] for stage in ("curate", "balance"))

    def is_there(copy: Ground) -> bool:
        began = any(reached(copy, night.outputs["balance"], "files") for night in channel.nights)
        return reached(copy, wanted, "record") and began == is_late

    assert sooner.manifest.stage < wanted.manifest.stage, "it is let go of first"
    _, moment = killed_at(channel, tmp_path, is_there)
    ground = Ground(str(tmp_path / "halted"))
    shutil.copytree(channel.ground.uri, ground.uri)
    gc = begun_gc(ground, moment, signal.SIGSTOP)
    assert gc.pid is not None
    while Path(f"/proc/{gc.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    found = reopened(ground.store, wanted)
    recipe = Recipe(stage="next", revision=1, semantic={}, inputs={"documents": found})
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(announce, ground.store, "next", recipe.key, recipe.outputs)
        time.sleep(0.5)
        assert not run.done(), "it waits"
        os.kill(gc.pid, signal.SIGCONT)
        gc.join(60)
        if is_late:
            with pytest.raises(Removed, match="was let go"):
                run.result()
            assert has_no_data(found) and find_whole(ground.store, "curate", found.manifest.key) is None
        else:
            run.result()
            assert has_all_data(found)
    assert gc.exitcode == 0 and ground.tool("verify").code == 0


def test_a_former_champion_on_every_kind_of_store(ground: Ground) -> None:
    channel = Channel(ground)
    first = channel.night(TEXTS, promoted=True)
    second = channel.night((*TEXTS, *MORE), promoted=True)
    before = {one: learned_by(ground, names([first, second]), one) for one in ids(TEXTS)}
    time.sleep(SETTLED_SECONDS + 1)  # S3 tells whole seconds
    said = ground.tool("gc", *GC)
    assert said.code == 0 and said.out.count("let go of the data of") == 3, said.out
    assert all(has_no_data(reopened(ground.store, first.outputs[stage])) for stage in WITH_DATA)
    assert all(has_all_data(reopened(ground.store, second.outputs[stage])) for stage in WITH_DATA)
    assert {one: learned_by(ground, names([first, second]), one) for one in ids(TEXTS)} == before
    again = Channel(ground, "again").night(TEXTS, promoted=False)
    assert has_all_data(reopened(ground.store, again.outputs["tokenize"]))
    assert ground.tool("verify").code == 0
