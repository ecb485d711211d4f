import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest
from spawned_jobs import kill_oneself, run_two_jobs

from yanmo.evaluate.baselines import ngram_bits, side_by_side, xz_figures
from yanmo.evaluate.documents import Document
from yanmo.evaluate.xz import added_bytes

TEXTS = ["明月几时有，\n把酒问青天。", "不知天上宫阙，\n今夕是何年。", "我欲乘风归去。"]


def test_xz_counts_documents_and_their_line_breaks_and_divides_by_characters():
    scored = [Document("1", "词", "s", "又恐琼楼玉宇，\n高处不胜寒。"), Document("2", "词", "s", "明月")]
    figures = xz_figures(TEXTS, scored)["genres"]["词"]
    prefix = ("\n".join(TEXTS) + "\n").encode()
    size = added_bytes(prefix, ["又恐琼楼玉宇，\n高处不胜寒。\n明月".encode()])[0]
    assert figures == {"documents": 2, "characters": 15, "bits_per_character": round(8 * size / 15, 4)}


def test_the_ngram_charges_the_end_of_each_document():
    whole, halves = ngram_bits(TEXTS, ["明月青天"]), ngram_bits(TEXTS, ["明月", "青天"])
    assert halves.shape == (2,)
    assert np.isfinite(halves).all() and halves.sum() != whole.sum()


def test_a_process_that_dies_or_raises_is_noticed():
    with pytest.raises(EOFError):
        side_by_side((kill_oneself, ()))
    with pytest.raises(ZeroDivisionError):
        side_by_side((divmod, (1, 0)), (divmod, (7, 2)))


def test_no_process_outlives_a_run_that_was_killed(tmp_path):
    note = tmp_path / "pid"
    parent = multiprocessing.get_context("spawn").Process(target=run_two_jobs, args=(note,))
    parent.start()
    deadline = time.monotonic() + 60
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    while Path(f"/proc/{note.read_text()}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert time.monotonic() < deadline
