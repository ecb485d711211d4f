"""Several ranks share one evaluation, as processes of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from test_pieces import TASKS, evaluate, evaluation, pieces_of
from tiny_store import make_ground

from yanmo.common.errors import UsageError
from yanmo.evaluate.bits import of_documents as scoring
from yanmo.evaluate.bits.pieces import KeptPieces, Ranks

DOCS = Path(__file__).parents[4] / "docs"
PROCESS = Path(__file__).parent / "evaluate_process.py"


def test_ranks_begin_with_their_own_pieces_and_help_from_the_end():
    assert Ranks(1, 3).order(7) == [1, 4, 6, 5, 3, 2, 0]
    assert Ranks(0, 1).order(3) == [0, 1, 2]
    assert Ranks(3, 4).order(2) == [1, 0]


@pytest.mark.parametrize(("rank", "size"), [("1", "1"), ("-1", "2"), ("one", "2"), ("0", "0"), ("1", "")])
def test_a_rank_that_cannot_be_is_refused(monkeypatch, rank, size):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(UsageError, match="0 <= RANK < WORLD_SIZE"):
        Ranks.of_environment()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A store, and the content digest that one process gives for it."""
    folder = tmp_path_factory.mktemp("measured")
    make_ground(folder / "store", folder / "model")
    shutil.copytree(folder / "store", folder / "copy")
    ground = make_ground(folder / "copy", folder / "unused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "_PIECE_TOKENS", 300)
        assert evaluate(ground, *TASKS) == 0
    return folder / "store", evaluation(ground).content_digest


@pytest.fixture
def shared(measured, tmp_path):
    """A copy of that store, and the digest."""
    shutil.copytree(measured[0], tmp_path / "shared")
    return make_ground(tmp_path / "shared", tmp_path / "model"), measured[1]


def start(ground, rank, kill="-", number=0, size=2):
    """A rank as a process of its own, which begins when all of them are ready."""
    roots = os.pathsep.join(path for path in sys.path if path)
    argv = ground.arguments("--documents", "none", *TASKS)
    return subprocess.Popen(
        [sys.executable, str(PROCESS), kill, str(number), str(size), str(ground.folder.parent), *argv],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "PYTHONPATH": roots},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*processes):
    """Exit codes and the pieces that each wrote."""
    shown = [process.communicate(timeout=240) for process in processes]
    return [process.returncode for process in processes], [out.split() for out, _ in shown]


@pytest.mark.process
def test_two_processes_share_an_evaluation_and_give_the_bytes_of_one(shared):
    ground, digest = shared
    codes, (first, second) = ended(start(ground, 0), start(ground, 1))
    assert codes == [0, 0]
    assert first and second and not set(first) >= set(second)
    assert evaluation(ground).content_digest == digest
    assert not pieces_of(ground)


@pytest.mark.fault
def test_a_rank_that_is_killed_costs_no_figure(shared):
    ground, digest = shared
    codes, (_, second) = ended(start(ground, 0), start(ground, 1, kill="bits", number=1))
    assert codes == [0, -9] and len(second) == 1
    assert evaluation(ground).content_digest == digest


@pytest.mark.fault
def test_what_ranks_made_before_the_first_was_killed_is_taken_when_it_comes_back(shared):
    ground, digest = shared
    codes, _ = ended(start(ground, 0, kill="bits"), start(ground, 1))
    assert codes == [-9, 0]
    codes, (written,) = ended(start(ground, 0, size=1))
    assert codes == [0] and not written
    assert evaluation(ground).content_digest == digest


def test_a_helping_rank_leaves_no_reference_and_does_nothing_for_a_committed_key(
    ground, tmp_path, monkeypatch
):
    assert evaluate(ground) == 0
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(KeptPieces, "all", lambda *_, **__: pytest.fail("it works"))
    out = tmp_path / "reference.json"
    assert evaluate(ground, "--reference-out", str(out)) == 0
    assert not out.exists()


def test_a_helping_rank_that_fails_does_not_end_the_run_for_good(ground, monkeypatch, caplog):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert evaluate(ground, "--run-id", "night") == 64
    assert "0 <= RANK < WORLD_SIZE" in caplog.text
    monkeypatch.setenv("RANK", "0")
    assert evaluate(ground, "--run-id", "night") == 0


def test_ranks_cannot_be_told_to_make_all_again(ground, monkeypatch, caplog):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert evaluate(ground, "--force") == 64
    assert "in one process" in caplog.text


def test_the_documented_lines_start_ranks_that_nobody_has_to_bring_together(tmp_path):
    pages = [(DOCS / page).read_text(encoding="utf-8") for page in ("evaluate.md", "evaluate.zh.md")]
    lines, translated = (
        [
            x.partition("#")[0].strip()
            for x in page.splitlines()
            if x.startswith(("    export ", "    for n in"))
        ]
        for page in pages
    )
    assert lines == translated and len(lines) == 2
    script = tmp_path / "show.py"
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    script.write_text(f"import os; print(' '.join(os.environ[name] for name in {names}) + '\\n', end='')")
    command = ["bash", "-c", "\n".join(lines).replace("yanmo evaluate ...", f"{sys.executable} {script}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert sorted(done.stdout.splitlines()) == [f"{n} 3 {n} 3" for n in range(3)], done.stderr
