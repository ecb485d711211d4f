"""What a live run makes and reads stays beside a gc without an age."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy_stage
from toy_outputs import recipe, write_text

from yanmo.store.commit import Recipe, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output, find_output, superseded_name
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.store.runs import in_use as session
from yanmo.store.runs.in_use import Removed
from yanmo.tools.store.command import main as tool

COMPONENTS = Path(__file__).parents[3] / "components"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(COMPONENTS)}


def gc(store: FileStore) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "yanmo.tools.store", "gc", f"--store={store.root}", "--delete"]
    return subprocess.run(
        [*command, "--older-than=0s", "--abandoned=0s"], env=ENVIRONMENT, capture_output=True, text=True
    )


def test_a_stage_next_to_gc_without_an_age_ends_at_its_first_try(store: FileStore) -> None:
    """Its parts, those made before its key is known and after its output is there, and the output itself."""
    flags = [f"--store={store.root}", "--late-seconds=3", "--metrics-port=-1"]
    stage = subprocess.Popen(
        [sys.executable, toy_stage.__file__, *flags], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    rounds = 0
    while stage.poll() is None:
        assert tool(["gc", f"--store={store.root}", "--delete", "--older-than=0s", "--abandoned=0s"]) == 0
        rounds += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            stage.wait(0.1)
    assert stage.stderr is not None
    assert stage.returncode == 0, stage.stderr.read()
    assert rounds >= 3
    assert read_pointer(store, "dev", "toy") is not None
    assert gc(store).returncode == 0
    assert not list(store.root.glob("runs/*/*/LEASE.json")), "a session ends with its run"


def test_a_session_spares_what_it_names_and_nothing_after_its_end(store: FileStore) -> None:
    made = [commit_once(store, recipe(n=n), write_text(f"诗{n}")) for n in range(3)]
    held = session.Session(store, "toy")
    try:
        held.use([made[0]])  # type: ignore[list-item]
        held.use([made[1]])  # type: ignore[list-item]
        assert gc(store).returncode == 0
        left = [find_output(store, "toy", recipe(n=n).key) is not None for n in range(3)]
        assert left == [True, True, False]
    finally:
        held.close()
    assert gc(store).returncode == 0
    assert [info.name for info in store.list("cas")] == []


def test_an_input_that_gc_took_ends_the_run_and_is_not_looked_for_again(store: FileStore) -> None:
    """Its output is there already, made from another input of equal content."""
    first, second = (commit_once(store, recipe(n=n), write_text("同")) for n in range(2))
    assert first and second and first.content_digest == second.content_digest
    made_of = [Recipe(stage="next", revision=1, semantic={}, inputs={"text": one}) for one in (first, second)]
    made = commit_once(store, made_of[0], write_text("文"))
    assert made and made_of[0].key == made_of[1].key
    move_pointer(store, "dev", "next", made.reference)
    assert gc(store).returncode == 0
    assert find_output(store, "toy", second.manifest.key) is None
    held, rounds = session.Session(store, "next"), []

    def taken_up(output: Output) -> None:
        rounds.append(output)
        assert len(rounds) < 5, "again and again"
        held.use([output, second])

    try:
        with pytest.raises(Removed, match=second.manifest.key):
            commit_once(store, made_of[1], write_text("文"), taken_up=taken_up)
    finally:
        held.close()


def test_an_input_that_a_killed_gc_withdrew_comes_back_as_the_message_says(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yanmo.store.runs.in_use._GC_SECONDS", 0.3)
    made = commit_once(store, recipe(), write_text("诗"))
    assert made
    pinned = made.reference
    store.create(
        superseded_name(pinned.stage, pinned.key, pinned.manifest_sha256), store.read(pinned.manifest_uri)[0]
    )
    store.delete(pinned.manifest_uri)
    next_recipe = Recipe(stage="next", revision=1, semantic={}, inputs={"text": made})
    with pytest.raises(Removed, match="run `yanmo store gc --delete`"):
        commit_once(store, next_recipe, write_text("文"))
    command = [sys.executable, "-m", "yanmo.tools.store", "gc", f"--store={store.root}", "--delete"]
    assert subprocess.run(command, env=ENVIRONMENT).returncode == 0
    assert commit_once(store, next_recipe, write_text("文"))


def test_what_is_named_already_is_not_written_again(store: FileStore) -> None:
    made = [commit_once(store, recipe(n=n), write_text(f"诗{n}")) for n in range(3)]
    held = session.Session(store, "toy")
    held.use(made)  # type: ignore[arg-type]
    page = next(store.root.glob("runs/toy/*/INPUTS.json"))
    before = page.stat().st_ino
    for one in made:
        held.use([one])  # type: ignore[list-item]
    assert page.stat().st_ino == before and len(list(store.root.glob("runs/toy/*/INPUTS.json"))) == 1
    held.close()


def test_a_long_list_is_begun_again_after_a_page(store: FileStore, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(session, "PAGE", 2)
    made = [commit_once(store, recipe(n=n), write_text(f"诗{n}")) for n in range(5)]
    held = session.Session(store, "toy")
    for one in made:
        held.use([one])  # type: ignore[list-item]
    pages = list(store.root.glob("runs/toy/*/INPUTS.json"))
    assert len([p for p in pages if p.read_text().count("content_digest") in (1, 2)]) == 3
    assert gc(store).returncode == 0
    assert all(find_output(store, "toy", recipe(n=n).key) for n in range(5))
    held.close()
