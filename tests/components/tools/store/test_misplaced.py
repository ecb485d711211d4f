"""Files of a store that lie in each other's places, and files that hold something else.

A restored backup, a wrong `aws s3 cp`, another version: whatever lies where a manifest, a pointer or a record
should be, gc removes nothing that a whole store would have kept, and verify names it.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable

import pytest
from ground import RAW, Ground, folder_of, work_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.common.errors import ExitCode
from yanmo.store.commit import Recipe
from yanmo.store.manifest import sealed, unsealed
from yanmo.store.output import open_reference
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.in_use import announce
from yanmo.store.runs.lease import Lease


def put(ground: Ground, name: str, data: bytes) -> None:
    """Write over an object, as a person or a restore does."""
    ground.store.delete(name)
    ground.store.create(name, data)


def exchange(ground: Ground, first: str, second: str) -> None:
    one, two = ground.store.read(first)[0], ground.store.read(second)[0]
    put(ground, first, two)
    put(ground, second, one)


def contents(ground: Ground) -> dict[str, bytes]:
    return {name: ground.store.read(name)[0] for name in ground.names() if not name.startswith("runs/")}


def check_nothing_goes(ground: Ground, *says: str) -> None:
    before = contents(ground)
    for argv in ((), ("--abandoned", "0")):
        result = ground.gc(*argv)
        assert result.code == ExitCode.DATA, result.out
    assert contents(ground) == before
    found = ground.tool("verify")
    assert found.code == ExitCode.DATA and all(words in found.out for words in says), found.out


def test_exchanged_manifests_of_two_outputs_stop_gc(ground: Ground) -> None:
    ground.chain()
    first, second = (ground.outputs[name].reference.manifest_uri for name in ("documents", "cache"))
    exchange(ground, first, second)
    check_nothing_goes(ground, "is the manifest of documents/", "is the manifest of cache/")


def test_an_older_manifest_of_the_key_in_its_place_stops_gc(ground: Ground) -> None:
    """The newer attempt's files are what the pointer pins, whatever MANIFEST.json names."""
    old = ground.commit("train", inputs={"sources": RAW}, text="旧")
    before = ground.store.read(old.reference.manifest_uri)[0]
    new = ground.commit("train", inputs={"sources": RAW}, text="新", force=True)
    move_pointer(ground.store, "demo", "train", new.reference)
    put(ground, new.reference.manifest_uri, before)
    check_nothing_goes(ground, "holds content")


def test_an_older_manifest_of_equal_content_stops_gc_too(ground: Ground) -> None:
    """--force mended a file whose bytes had changed: the older attempt is the damaged one."""
    old = ground.commit("train", inputs={"sources": RAW}, text="文")
    name = f"{folder_of(old)}/{old.manifest.attempt}/content.txt"
    put(ground, name, "坏".encode())
    before = ground.store.read(old.reference.manifest_uri)[0]
    new = ground.commit("train", inputs={"sources": RAW}, text="文", force=True)
    assert new.manifest.attempt != old.manifest.attempt and new.content_digest == old.content_digest
    move_pointer(ground.store, "demo", "train", new.reference)
    put(ground, new.reference.manifest_uri, before)
    check_nothing_goes(ground, name)


def test_a_manifest_that_lies_elsewhere_and_not_in_its_place_stops_gc(ground: Ground) -> None:
    """What a pinned output rests on is not known without its manifest."""
    ground.chain()
    name = ground.outputs["model"].reference.manifest_uri
    data = ground.store.read(name)[0]
    ground.store.delete(name)
    ground.store.create(f"{name.removesuffix('MANIFEST.json')}MANIFEST-0123456789ab.json", data)
    check_nothing_goes(ground, "no such output")


def test_a_champion_that_was_lost_whole_stops_gc(ground: Ground) -> None:
    """A store that is half restored: what the champion rests on is named by its manifest alone."""
    ground.chain()
    for name in ["old", "model"]:
        for lost in ground.names(folder_of(ground.outputs[name])):
            ground.store.delete(lost)
        for lost in ground.names(work_of(ground.outputs[name])):
            ground.store.delete(lost)
    check_nothing_goes(ground, "demo/champion")
    assert ground.gc(age="7d").code == ExitCode.DATA
    ground.store.delete(NAMES["pointer"])
    assert ground.gc().code == 0, "as the message says"


def test_a_champion_that_is_being_made_again_does_not_stop_gc(ground: Ground) -> None:
    """What a run finds that took it up while an earlier gc removed it: it ends with 75 and is tried again."""
    ground.chain()
    model = ground.outputs["model"]
    for lost in [*ground.names(folder_of(model)), *ground.names(work_of(model))]:
        ground.store.delete(lost)
    inputs = {"cache": ground.outputs["cache"]}
    again = threading.Timer(0.3, lambda: ground.commit("train", inputs=inputs, seed=1, text="新"))
    again.start()
    result = ground.gc()
    again.join()
    assert result.code == 0, result.out
    assert ground.tool("verify").code == 0


def test_an_output_that_was_lost_whole_does_not_stop_gc(ground: Ground) -> None:
    ground.chain()
    for name in ground.names(folder_of(ground.outputs["old"])):
        ground.store.delete(name)
    result = ground.gc()
    assert result.code == 0 and "dangling: demo/history/000001" in result.out


def remake(ground: Ground) -> None:
    """Run every stage of the chain again with --force, in its order, as the messages say."""
    documents = ground.commit("documents", inputs={"sources": RAW}, force=True)
    tokenizer = ground.commit("tokenizer", inputs={"documents": documents}, force=True)
    inputs = {"documents": documents, "tokenizer": tokenizer}
    cache = ground.commit("cache", inputs=inputs, parts={"tokenizer": tokenizer}, force=True)
    for seed, text in enumerate("旧新"):
        ground.commit("train", inputs={"cache": cache}, seed=seed, text=text, force=True)


def cut(ground: Ground, name: str) -> None:
    put(ground, name, ground.store.read(name)[0][:-60])


LOST: dict[str, Callable[[Ground, str, str], None]] = {
    "cut": lambda ground, one, other: cut(ground, one),
    "both cut": lambda ground, one, other: cut(ground, one) or cut(ground, other),
    "deleted": lambda ground, one, other: ground.store.delete(one),
    "exchanged": exchange,
}


@pytest.mark.parametrize(
    ("how", "pair"),
    [
        ("cut", ("model", "cache")),
        ("both cut", ("documents", "cache")),
        ("deleted", ("tokenizer", "old")),
        ("exchanged", ("documents", "cache")),
    ],
)
def test_what_the_messages_advise_about_a_lost_manifest_mends_it(
    ground: Ground, how: str, pair: tuple[str, str]
) -> None:
    ground.chain()
    one, other = (ground.outputs[name].reference.manifest_uri for name in pair)
    LOST[how](ground, one, other)
    stopped = ground.gc()
    assert stopped.code == ExitCode.DATA
    remake(ground)
    for _ in range(2):  # the first removes what was replaced, the second finds nothing
        assert ground.gc().code == 0
        assert ground.tool("verify").code == 0
    for output in ground.outputs.values():
        assert open_reference(ground.store, output.reference).missing() is None


OTHER = [b"null", b"", b'{"schema": "yanmo.reference/1"}', b'{"schema": "yanmo.other/1"}']
OTHER_SCHEMA = {"pointer": "yanmo.reference", "record": "yanmo.promotion", "inputs": "yanmo.inputs"}
NAMES = {"pointer": "pointers/demo/champion.json", "record": "pointers/demo/history/000001.json"}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("data", OTHER)
def test_other_json_where_a_reference_should_be_names_something_unknown(
    folder_ground: Ground, kind: str, data: bytes
) -> None:
    ground = folder_ground.chain()
    put(ground, NAMES[kind], data)
    check_nothing_goes(ground, NAMES[kind])


@pytest.mark.parametrize("kind", NAMES)
def test_another_schema_is_refused_as_another_versions(folder_ground: Ground, kind: str) -> None:
    ground = folder_ground.chain()
    schema = f"{OTHER_SCHEMA[kind]}/9"
    put(ground, NAMES[kind], json.dumps({"schema": schema, "names": "something"}).encode())
    check_nothing_goes(ground, NAMES[kind], f"{schema!r} is of another version of Yanmo")


@pytest.mark.parametrize("data", [*OTHER, json.dumps({"schema": OTHER_SCHEMA["inputs"] + "/2"}).encode()])
def test_a_live_runs_list_of_inputs_that_holds_other_json_stops_gc(
    folder_ground: Ground, data: bytes
) -> None:
    ground = folder_ground
    documents = ground.commit("documents", inputs={"sources": RAW})
    recipe = Recipe(stage="train", revision=1, semantic={}, inputs={"documents": documents})
    lease = Lease(ground.store, f"runs/train/{recipe.key}/LEASE.json", "0123456789ab")
    assert lease.acquire()
    try:
        announce(ground.store, "train", recipe.key, recipe.outputs)
        put(ground, f"runs/train/{recipe.key}/INPUTS.json", data)
        before = contents(ground)
        assert ground.gc().code == ExitCode.DATA and contents(ground) == before
    finally:
        lease.release()


def test_records_of_a_history_in_each_others_places_are_found(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    record = json.loads(unsealed(ground.store.read(NAMES["record"])[0]))
    second = "pointers/demo/history/000002.json"
    for name, number in ((NAMES["record"], 1), (second, 2)):
        put(ground, name, sealed(json.dumps({**record, "number": number}, indent=1).encode()))
    assert ground.tool("verify").code == 0
    exchange(ground, NAMES["record"], second)
    check_nothing_goes(ground, "is the record of number 2", "is the record of number 1")


def test_an_unknown_file_below_pointers_stops_gc(folder_ground: Ground) -> None:
    ground = folder_ground.chain()
    ground.write("pointers/demo/branches/one.json", b"{}")
    check_nothing_goes(ground, "pointers/demo/branches/one.json")


PLACES: dict[str, Callable[[Ground], str]] = {
    **{
        f"manifest of {name}": lambda ground, name=name: ground.outputs[name].reference.manifest_uri  # type: ignore[misc]
        for name in ("documents", "tokenizer", "cache", "old", "model")
    },
    **{
        f"pointer {name}": lambda ground, name=name: f"pointers/demo/{name}.json"  # type: ignore[misc]
        for name in ("champion", "tokenizer")
    },
    "record": lambda ground: NAMES["record"],
    "content": lambda ground: (
        f"{folder_of(ground.outputs['cache'])}/{ground.outputs['cache'].manifest.attempt}/content.txt"
    ),
}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(list(itertools.combinations(PLACES, 2))), st.integers(0, 2**32))
def test_any_two_objects_exchanged_lose_nothing(
    folder_ground: Ground, pair: tuple[str, str], number: int
) -> None:
    """After exchange and gc, exchanging them back gives the whole store again."""
    ground = Ground(f"{folder_ground.uri}-{number}-{len(contents(folder_ground))}")
    if not ground.names():
        ground.chain()
        move_pointer(ground.store, "demo", "tokenizer", ground.outputs["tokenizer"].reference)
        ground.unwanted()
    else:
        return  # this number was drawn before
    first, second = (PLACES[name](ground) for name in pair)
    exchange(ground, first, second)
    assert ground.tool("verify").code == ExitCode.DATA
    ground.gc()
    exchange(ground, first, second)
    assert ground.tool("verify").code == 0
    assert all(output.missing() is None for output in ground.outputs.values())
