"""A killed evaluation goes on where it was, and what it left is checked."""

import shutil

import numpy as np
import pytest
from tiny_store import make_ground

from yanmo.evaluate.bits import of_documents as scoring
from yanmo.evaluate.bits.of_documents import load_model, score
from yanmo.evaluate.bits.pieces import KeptPieces, PieceTask
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.documents.reading import read_split
from yanmo.evaluate.work import STEPS
from yanmo.stage.run import main
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(scoring, "_PIECE_TOKENS", 300)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "pieces"))


def jobs(made, count, plan="plan"):
    """Jobs that say in `made` who was at work."""

    def job(number):
        return PieceTask(f"{plan}{number}", lambda: made.append(number) or [number, number / 3])

    return [job(number) for number in range(count)]


def test_pieces_are_made_once_and_read_as_they_were_written(store):
    made = []
    first = KeptPieces(store, "runs/a/b").all("bits", jobs(made, 3))
    assert KeptPieces(store, "runs/a/b").all("bits", jobs(made, 3)) == first == [[i, i / 3] for i in range(3)]
    assert made == [0, 1, 2]
    assert KeptPieces(store, "runs/a/b", again=True).all("bits", jobs(made, 3)) == first
    assert made == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "body",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("0.333", "0.334"),
        lambda text: "[]",
        lambda text: "{}",
        lambda text: "\0" * 100,
        lambda text: "",
    ],
)
def test_a_damaged_piece_is_made_again(store, tmp_path, body, caplog):
    made = []
    whole = KeptPieces(store, "runs/a/b").all("bits", jobs(made, 2))
    path = tmp_path / "pieces/runs/a/b/pieces/bits-00001.json"
    path.write_text(body(path.read_text()))
    assert KeptPieces(store, "runs/a/b").all("bits", jobs(made, 2)) == whole
    assert made == [0, 1, 1]
    assert "it is made again" in caplog.text
    assert KeptPieces(store, "runs/a/b").all("bits", jobs(made, 2)) == whole
    assert made == [0, 1, 1]


def test_a_piece_of_another_plan_is_not_taken(store):
    made = []
    KeptPieces(store, "runs/a/b").all("bits", jobs(made, 1))
    KeptPieces(store, "runs/a/b").all("bits", jobs(made, 1, "another"))
    assert made == [0, 0]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def killed_after(monkeypatch, number):
    """Scoring dies when it begins piece `number`; returns the list of pieces that it scored."""
    scored, original = [], scoring._window_bits

    def window_bits(*args):
        if len(scored) == number:
            raise Killed
        scored.append(1)
        return original(*args)

    monkeypatch.setattr(scoring, "_window_bits", window_bits)
    return scored


def test_a_killed_run_scores_only_what_is_missing_and_gives_the_same_figures(ground, store, monkeypatch):
    loaded, documents = load_model(ground.model), read_split(ground.evaluation_set, "test")
    whole = score(loaded, documents, with_tag=True, workers=1)
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            score(loaded, documents, with_tag=True, workers=1, pieces=KeptPieces(store, "runs/a/b"))
    kept = sorted(info.name for info in store.list("runs/a/b"))
    assert len(kept) == 2
    store.delete(kept[0])
    scored = killed_after(monkeypatch, 1000)
    again = score(loaded, documents, with_tag=True, workers=2, pieces=KeptPieces(store, "runs/a/b"))
    assert len(scored) == len(list(store.list("runs/a/b"))) - 1 > 0
    np.testing.assert_array_equal(again.bits, whole.bits)
    np.testing.assert_array_equal(again.bits_with_tag, whole.bits_with_tag)


def evaluate(ground, *more):
    argv = ground.arguments("--documents", "none", "--samples", "2", *more)
    return main(STAGE, STEPS, argv)


def evaluation(ground, name="evaluate"):
    return open_reference(ground.store, read_pointer(ground.store, "dev", name))


def pieces_of(ground, stage="evaluate"):
    return [info.name for info in ground.store.list(f"runs/{stage}") if "/pieces/" in info.name]


TASKS = ("--samples", "2", "--tasks", "likelihood", "--task-documents", "12")


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("pieces/bits", 2),
        ("pieces/samples", 1),
        ("pieces/tasks-next-line", 0),
        ("runs/baselines", 2),
    ],
)
def test_a_run_killed_in_any_phase_goes_on_there_and_gives_the_bytes_of_one_that_was_not(
    ground, tmp_path, monkeypatch, phase, number
):
    stage = "baselines" if phase == "runs/baselines" else "evaluate"
    more = [*TASKS, *([] if stage == "baselines" else ["--documents", "none"])]
    argv = ground.arguments(*more)
    shutil.copytree(ground.folder, tmp_path / "other")
    with monkeypatch.context() as patch:
        written, original = [], KeptPieces._write

        def write(self, path, body):
            if phase in path and sum(phase in each for each in written) == number:
                raise Killed
            original(self, path, body)
            written.append(path)

        patch.setattr(KeptPieces, "_write", write)
        with pytest.raises(Killed):
            main(STAGE, STEPS, argv)
    left = pieces_of(ground, stage)
    with monkeypatch.context() as patch:
        again, original = [], KeptPieces._write
        patch.setattr(
            KeptPieces, "_write", lambda self, path, body: again.append(path) or original(self, path, body)
        )
        assert main(STAGE, STEPS, argv) == 0
    assert not set(again) & set(left)
    assert sum(phase in each for each in left) == number
    assert not pieces_of(ground) and not pieces_of(ground, "baselines")
    whole = make_ground(tmp_path / "other", tmp_path / "unused")
    assert main(STAGE, STEPS, whole.arguments(*more)) == 0
    for name in {"evaluate", stage}:
        assert evaluation(ground, name).content_digest == evaluation(whole, name).content_digest


def test_the_stage_leaves_no_pieces_and_makes_them_again_when_forced(ground, monkeypatch):
    assert evaluate(ground) == 0
    first = evaluation(ground).content_digest
    assert not pieces_of(ground)
    scored = killed_after(monkeypatch, 1000)
    assert evaluate(ground, "--force") == 0
    assert len(scored) > 2 and evaluation(ground).content_digest == first


def test_pieces_on_a_far_store_are_taken_by_a_run_on_another_machine(
    s3_server, s3_place, tmp_path, monkeypatch
):
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "one"))
    ground = make_ground(f"s3://{s3_place}/pieces", tmp_path / "model")
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            evaluate(ground)
    assert len(pieces_of(ground)) == 2
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "another"))
    scored = killed_after(monkeypatch, 1000)
    assert evaluate(ground) == 0
    goes_on, total = len(scored), len(scored) + 2
    assert not pieces_of(ground)
    first = evaluation(ground).content_digest
    assert evaluate(ground, "--force") == 0
    assert len(scored) - goes_on == total and evaluation(ground).content_digest == first
