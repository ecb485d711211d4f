"""The DAG's first task: pointers are followed once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from yanmo.common.errors import DataError
from yanmo.evaluate.config import STAGE as EVALUATE
from yanmo.options.command_line import load
from yanmo.options.shared import StageOptions
from yanmo.resolve.command import main
from yanmo.resolve.config import ResolveOptions
from yanmo.resolve.references import resolve
from yanmo.stage.form import load_shared, with_pinned
from yanmo.stage.inputs import resolve_inputs
from yanmo.store.champion_records import ChampionRecord, write_record
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.store.record import utc_now
from yanmo.store.runs.run_record import RUN, add_to_run, run_record_name

PINNED = ("champion", "evaluation_set", "start_model", "tokenizer")


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def made(
    store: FileStore,
    stage: str,
    inputs: dict[str, Output] | None = None,
    references: dict[str, Output] | None = None,
) -> Output:
    def build(attempt: Attempt) -> Result:
        attempt.write("file", stage)
        return Result(counts={}, references=references or {})

    found = commit_once(store, Recipe(stage=stage, revision=1, semantic={}, inputs=inputs or {}), build)
    assert found is not None
    return found


@pytest.fixture
def model(store: FileStore) -> Reference:
    return made(store, "train").reference


def options(store: FileStore, *flags: str) -> ResolveOptions:
    return load(ResolveOptions, [f"--store={store.root}", *flags], "yanmo resolve")


@pytest.mark.parametrize("before", ["lost", "behind"])
def test_a_pointer_that_is_lost_or_behind_follows_the_history_before_it_is_pinned(
    store: FileStore, model: Reference, before: str
) -> None:
    """A promote was killed between its record and the pointer."""
    verdict, evaluation = (made(store, stage).reference for stage in ("promote", "evaluate"))
    older = made(store, "train", {"token_cache": made(store, "tokenize")}).reference
    record = ChampionRecord(
        number=1,
        champion_since=utc_now(),
        model=model,
        evaluation=evaluation,
        verdict=verdict,
        previous=older,
    )
    assert write_record(store, "dev", record)
    if before == "behind":
        move_pointer(store, "dev", "champion", older)
    assert resolve(store, options(store))["champion"] == model == read_pointer(store, "dev", "champion")


def test_a_new_channel_has_nothing(store: FileStore) -> None:
    assert resolve(store, options(store)) == dict.fromkeys(PINNED)
    assert resolve(store, options(store, "--start-from=champion")) == dict.fromkeys(PINNED)


def test_what_is_pointed_at_is_pinned_and_a_later_promotion_changes_nothing(
    store: FileStore, model: Reference, tmp_path: Path
) -> None:
    move_pointer(store, "dev", "champion", model)
    kfp = {"outputs": {"outputFile": str(tmp_path / "executor_output.json")}}
    assert main([f"--store={store.root}", f"--executor-input={json.dumps(kfp)}", "--run-id=r"]) == 0
    shutil.rmtree(store.root / "pointers/dev/champion.json", ignore_errors=True)
    left = RUN.read(store, run_record_name("dev", "r"))
    assert left is not None and left.pinned == {**dict.fromkeys(PINNED), "champion": model}
    words = ["--model=pinned:champion", "--evaluation-set=pinned:evaluation_set", "--options=pinned"]
    found = with_pinned(words, store, load_shared(["--channel=dev", "--run-id=r"], "yanmo evaluate"))
    assert found == [f"--model={model.to_json()}", "--evaluation-set=none", "--options="]
    with pytest.raises(DataError, match=r"run s has no record .* clone the run"):
        with_pinned(words, store, load_shared(["--channel=dev", "--run-id=s"], "yanmo evaluate"))
    add_to_run(store, "dev", "s", {"train": model})
    with pytest.raises(DataError, match=r"run s has no record .* gc removed it"):
        with_pinned(words, store, load_shared(["--channel=dev", "--run-id=s"], "yanmo evaluate"))


def test_a_pointer_to_an_output_that_is_gone_fails_before_anything_is_made(
    store: FileStore, model: Reference
) -> None:
    move_pointer(store, "dev", "champion", model)
    shutil.rmtree(store.root / "cas/train")
    with pytest.raises(DataError, match="run the train stage again"):
        resolve(store, options(store))
    assert main([f"--store={store.root}"]) == 65


def test_a_model_to_start_from_brings_its_tokenizer(store: FileStore) -> None:
    tokenizer = made(store, "tokenizer")
    cache = made(store, "tokenize", references={"tokenizer": tokenizer})
    model = made(store, "train", {"token_cache": cache})
    move_pointer(store, "dev", "champion", model.reference)
    for flags, wanted in [
        ((), (None, tokenizer)),
        (("--use-tokenizer=new",), (None, None)),
        (("--use-tokenizer=none",), (None, None)),
        (("--start-from=champion",), (model, tokenizer)),
        ((f"--start-from=train/{model.manifest.key[:12]}",), (model, tokenizer)),
        (("--start-from=champion", "--use-tokenizer=none"), (model, None)),
        (("--use-tokenizer=champion",), (None, tokenizer)),
        (("--start-from=latest",), (None, tokenizer)),
        ((f"--use-tokenizer=tokenizer/{tokenizer.manifest.key}",), (None, tokenizer)),
    ]:
        found = resolve(store, options(store, *flags))
        got = found["start_model"], found["tokenizer"]
        assert got == tuple(one.reference if one else None for one in wanted), flags
    with pytest.raises(DataError, match=r"expected an output of train"):
        resolve(store, options(store, f"--start-from=tokenizer/{tokenizer.manifest.key}"))
    for flag, name in (("--start-from", "model_start"), ("--use-tokenizer", "model_tokenizer")):
        with pytest.raises(DataError, match=f"^{name} 'train/abcd': .* no such output"):
            resolve(store, options(store, f"{flag}=train/abcd"))


def test_another_channels_champion_is_tuned_and_one_that_is_not_there_is_no_new_model(
    store: FileStore, model: Reference
) -> None:
    with pytest.raises(DataError, match=r"'main' .* has no champion yet. Make one .*`yanmo run --channel m"):
        resolve(store, options(store, "--channel=chat", "--start-from=main/champion"))
    assert main([f"--store={store.root}", "--channel=chat", "--start-from=main/champion"]) == 65
    move_pointer(store, "main", "champion", model)
    found = resolve(store, options(store, "--channel=chat", "--start-from=main/champion"))
    assert (found["start_model"], found["champion"]) == (model, None)
    with pytest.raises(ValueError, match="expected train/KEY"):
        resolve(store, options(store, "--start-from=../champion"))


def test_an_imported_model_to_start_from_brings_the_tokenizer_of_its_import(store: FileStore) -> None:
    tokenizer = made(store, "tokenizer")
    imported = made(store, "train", references={"tokenizer": tokenizer})
    found = resolve(store, options(store, f"--start-from=train/{imported.manifest.key}"))
    assert found["start_model"] == imported.reference and found["tokenizer"] == tokenizer.reference


def test_latest_is_what_the_channel_trained_last_and_a_new_one_before_that(
    store: FileStore, model: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    both = ("--start-from=latest", "--use-tokenizer=latest")
    assert resolve(store, options(store, *both)) == dict.fromkeys(PINNED)
    assert "--start-from latest: channel dev has none yet, so a new one is made" in caplog.messages
    move_pointer(store, "dev", "train", model)
    found = resolve(store, options(store, "--start-from=latest", "--use-tokenizer=none"))
    assert found["start_model"] == model and found["champion"] is None, "no champion is needed"
    of_another = options(store, "--channel=nightly", "--start-from=latest")
    assert resolve(store, of_another)["start_model"] is None

    tokenizer = made(store, "tokenizer")
    move_pointer(store, "dev", "tokenizer", tokenizer.reference)
    assert resolve(store, options(store, "--use-tokenizer=latest"))["tokenizer"] == tokenizer.reference


def test_by_hand_it_prints_an_inputs_file(
    store: FileStore, model: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    move_pointer(store, "dev", "champion", model)
    assert main([f"--store={store.root}"]) == 0
    assert json.loads(capsys.readouterr().out) == {"champion": vars(model), "evaluation_set": "none"}


def test_the_body_none_is_no_model_to_the_stage_that_gets_it(
    store: FileStore, model: Reference, tmp_path: Path
) -> None:
    none = tmp_path / "none"
    none.write_text("none\n")
    reference = tmp_path / "set.json"
    reference.write_text(made(store, "evaluation_set").reference.to_json())
    start = tmp_path / "model.json"
    start.write_text(model.to_json())
    flags = [f"--store={store.root}", f"--model={start}", f"--evaluation-set={reference}", "--documents=none"]
    options: StageOptions = load(EVALUATE.config, [*flags, f"--champion={none}"], "yanmo evaluate")
    inputs = resolve_inputs(store, options)
    assert {name for name, output in inputs.items() if output} == {"model", "evaluation_set"}
    wrong = tmp_path / "wrong.json"
    wrong.write_text(model.to_json())
    for flag in (f"--evaluation-set={wrong}", f"--evaluation-set=train/{model.key}", f"--documents={wrong}"):
        options = load(EVALUATE.config, [*flags, flag], "yanmo evaluate")
        with pytest.raises(DataError, match=r"names train/.*expected an output of"):
            resolve_inputs(store, options)
