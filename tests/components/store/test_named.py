"""One grammar for every option that names a committed output, whatever stage or tool takes it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import STAGES
from yanmo.options.command_line import load
from yanmo.options.fields import flag, option_fields
from yanmo.resolve.config import ResolveOptions
from yanmo.resolve.references import resolve
from yanmo.stage.inputs import resolve_inputs
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.named import CHAMPION, LATEST, MODEL, PausedInput, Wanted, find_named
from yanmo.store.output import Output, Pause, PausedOutput
from yanmo.store.pointers import POINTED, move_pointer
from yanmo.store.runs.run_record import add_to_run
from yanmo.tools.generate.named_model import model_output
from yanmo.tools.store.find import find

OWN, OTHER = "mine", "demo"


def committed(store: FileStore, stage: str, number: int = 0) -> Output:
    def build(attempt: Any) -> Result:
        attempt.write("text.txt", f"{stage} {number}")
        return Result(counts={})

    recipe = Recipe(stage=stage, revision=1, semantic={"number": number}, inputs={})
    output = commit_once(store, recipe, build)
    assert output is not None
    return output


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """Each pointer of the own channel names an output, those of `demo` another, those of a run a third."""
    found = FileStore(tmp_path / "store")
    for number, channel in enumerate((OWN, OTHER)):
        for pointer, stage in POINTED.items():
            move_pointer(found, channel, pointer, committed(found, stage, number).reference)
    made = {pointer: committed(found, stage, 2).reference for pointer, stage in POINTED.items()}
    add_to_run(found, OWN, "night-1", made)
    return found


def spellings(store: FileStore, folder: Path, pointer: str) -> Iterator[tuple[str, Output]]:
    """Ways to name outputs of a stage, and which each is."""
    mine, other, of_run = (committed(store, POINTED[pointer], number) for number in range(3))
    body = mine.reference.to_json()
    stage, key = mine.manifest.stage, mine.manifest.key
    (folder / "reference.json").write_text(body, encoding="utf-8")
    for value in (f"{stage}/{key}", f"{stage}/{key[:4]}", key, key[:12], body, f"{folder}/reference.json"):
        yield value, mine
    yield f"cas/{stage}/{key}/MANIFEST.json", mine
    yield f"{OTHER}/{pointer}", other
    yield f"pointers/{OTHER}/{pointer}.json", other
    yield OTHER, other
    yield LATEST, mine
    yield "run:night-1", of_run
    if stage == MODEL:
        yield CHAMPION, mine


def inputs() -> list[Any]:
    """Every input of every stage."""
    configs = [importlib.import_module(f"yanmo.{stage}.config").STAGE.config for stage in STAGES]
    return [
        pytest.param(config, field, id=f"{config.__name__} {field.name}")
        for config in configs
        for field in option_fields(config, "input")
    ]


@pytest.mark.parametrize(("config", "field"), inputs())
def test_every_input_of_a_stage_takes_every_spelling(
    store: FileStore, tmp_path: Path, config: type, field: dataclasses.Field[Any]
) -> None:
    pointer = field.metadata["stages"][0]
    for value, expected in spellings(store, tmp_path, pointer):
        options = load(
            config, [f"{flag(field.name)}={value}", f"--channel={OWN}", *_needed(config)], "yanmo x"
        )
        found = resolve_inputs(store, options)[field.name]  # type: ignore[arg-type]
        assert found is not None and found.reference == expected.reference, value


def _needed(config: type) -> list[str]:
    return ["--sources=x"] if config.__name__ == "CurateOptions" else []


OF_A_MODEL: dict[str, Callable[[FileStore, str], Output]] = {
    "generate --model, export": lambda store, value: model_output(store, value, OWN),
    "WHAT of a tool for trainings": lambda store, value: find(store, value, MODEL, channel=OWN),
    "--start-from": lambda store, value: _start(store, value),
}


def _start(store: FileStore, value: str) -> Output:
    options = ResolveOptions(channel=OWN, start_from=value, use_tokenizer="new")
    reference = resolve(store, options)["start_model"]
    found = find_named(store, reference.to_json() if reference else "none", Wanted(where="x"))
    assert found is not None
    return found


@pytest.mark.parametrize("taken_by", OF_A_MODEL)
def test_every_option_that_takes_a_model_takes_every_spelling(
    store: FileStore, tmp_path: Path, taken_by: str
) -> None:
    for value, expected in spellings(store, tmp_path, MODEL):
        assert OF_A_MODEL[taken_by](store, value).reference == expected.reference, value


@pytest.mark.parametrize("pointer", POINTED)
def test_a_tool_for_outputs_of_any_stage_takes_all_that_says_which(
    store: FileStore, tmp_path: Path, pointer: str
) -> None:
    for value, expected in spellings(store, tmp_path, pointer):
        if value in (OTHER, LATEST, CHAMPION, "run:night-1"):
            with pytest.raises((UsageError, DataError), match=r"which stage|expected STAGE/KEY"):
                find(store, value, channel=OWN)
        else:
            assert find(store, value, channel=OWN).reference == expected.reference, value


@pytest.mark.parametrize("stage", [MODEL, "tokenize", "curate"])
def test_the_latest_of_a_channel_without_one_is_missing_data_and_no_misspelling(
    store: FileStore, tmp_path: Path, stage: str
) -> None:
    spellings(store, tmp_path, stage)
    for channel in (OWN, OTHER):
        assert find(store, LATEST, stage, channel=channel)
    said = (
        rf"channel 'new' .* has no {stage} output yet. Make one .*; a channel that has one: {OTHER}, {OWN}$"
    )
    with pytest.raises(DataError, match=said):
        find(store, LATEST, stage, channel="new")


def test_a_channel_where_an_output_is_wanted_is_not_said_to_be_missing(store: FileStore) -> None:
    with pytest.raises(UsageError, match=rf"WHAT '{OTHER}': of which stage\? Give STAGE/KEY"):
        find(store, OTHER, channel=OWN)
    with pytest.raises(DataError, match=r"^WHAT demo/train: names train/.*of curate; give curate/KEY$"):
        find(store, f"{OTHER}/train", "curate", channel=OWN)
    move_pointer(store, "young", "curate", committed(store, "curate").reference)
    with pytest.raises(DataError, match=r"'young': channel 'young' .* has no tokenize output yet"):
        find(store, "young", "tokenize", channel=OWN)


WANTED = Wanted(where="--model", stages=(MODEL,), pointers=(MODEL,), channel="new")


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ("../../etc", UsageError, "no such file"),
        ("a b", UsageError, r"expected train/KEY .* run:ID"),
        ("train/", UsageError, "expected train/KEY"),
        ("run:", UsageError, "no run of that id"),
        ("run:night-1", UsageError, "channel 'new' .* has no run of that id"),
        ("champion", DataError, r"channel 'new' .* has no champion yet. Make one first .*--channel new"),
        ("new/champion", DataError, "channel 'new' .* has no champion yet"),
        ("nowhere", DataError, "no such key, and no channel of that name"),
        ("train/0123", DataError, "no such output"),
        (f"{OTHER}/evaluate", DataError, "expected an output of train"),
    ],
)
def test_what_names_nothing_says_what_would(
    store: FileStore, value: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as found:
        find_named(store, value, WANTED)
    assert "--model" in str(found.value)


def test_nothing_is_named_by_none_and_by_latest_before_there_is_one(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "artifact").write_text("none\n", encoding="utf-8")
    for value in ("none", "latest", f"{tmp_path}/artifact"):
        assert find_named(store, value, WANTED) is None


def test_a_file_is_what_it_holds_whatever_pointer_is_called_like_it(store: FileStore, tmp_path: Path) -> None:
    """KFP's artifacts are files named after outputs: the champion's evaluation may lie in `.../champion`."""
    evaluated = committed(store, "evaluate", 7)
    (tmp_path / CHAMPION).write_text(evaluated.reference.to_json(), encoding="utf-8")
    found = find_named(store, str(tmp_path / CHAMPION), Wanted(where="--champion", stages=("evaluate",)))
    assert found is not None and found.reference == evaluated.reference


def test_a_channel_without_a_champion_stands_for_its_latest_model(store: FileStore) -> None:
    move_pointer(store, "new", MODEL, committed(store, MODEL, 3).reference)
    found = find_named(store, "new", dataclasses.replace(WANTED, channel=OWN))
    assert found is not None and found.reference == committed(store, MODEL, 3).reference


def test_digits_that_outputs_of_several_stages_begin_with_are_refused(store: FileStore) -> None:
    keys: dict[str, str] = {}
    for number in range(400):
        for stage in ("train", "evaluate"):
            key = committed(store, stage, number + 10).manifest.key[:4]
            if keys.setdefault(key, stage) != stage:
                with pytest.raises(UsageError, match="could be"):
                    find(store, key)
                return
    pytest.fail("no two keys begin alike")


def test_a_paused_output_is_said_to_be_none_yet(store: FileStore) -> None:
    paused = PausedOutput.of(MODEL, "1" * 64, Pause(where="step 3 of 9", why="asked to stop")).to_json()
    with pytest.raises(PausedInput, match="no output yet"):
        find_named(store, paused, WANTED)
