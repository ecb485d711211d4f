from __future__ import annotations

import re

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.chinese.text_runs import Runs, _unit_spans, han_only, run_hashes, units

TEXT = st.text(st.sampled_from("天地玄黄，\n〇ab1 -カé𠀀_"), max_size=30)


def units_of(text: str) -> list[str]:
    return re.findall(r"[〇天地玄黄カ𠀀]|[ab1é]+", text)


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    units = units_of(text)
    return {tuple(units[i : i + length]) for i in range(len(units) - length + 1)}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6), st.integers(5, 13))
def test_found_documents_are_those_that_share_a_run(held: list[str], texts: list[str], length: int) -> None:
    known = set().union(*(runs(t, length) for t in held)) if held else set()
    found = Runs.of(held, length).found_in(texts)
    assert found.tolist() == [bool(runs(t, length) & known) for t in texts]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6), st.integers(2, 5))
def test_the_share_of_a_text_is_that_of_its_units_in_shared_runs(
    held: list[str], texts: list[str], length: int
) -> None:
    known = set().union(*(runs(t, length) for t in held)) if held else set()
    shares, _ = Runs.of(held, length).shares(texts)
    for text, share in zip(texts, shares.tolist(), strict=True):
        own = units_of(text)
        inside = {
            i + j for i in range(len(own)) if tuple(own[i : i + length]) in known for j in range(length)
        }
        assert share == (len(inside) / len(own) if own else 0)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6), st.integers(2, 5))
def test_documents_are_counted_by_the_runs_they_hold(held: list[str], texts: list[str], length: int) -> None:
    known = set().union(*(runs(t, length) for t in held)) if held else set()
    wanted = sorted(n for run in known if (n := sum(run in runs(t, length) for t in texts)))
    of = Runs.of(held, length)
    hashes, numbers = of.documents_with(texts)
    assert sorted(numbers.tolist()) == wanted and np.array_equal(hashes, of.shares(texts)[1])
    assert not of.without(hashes).found_in(texts).any()


def test_runs_do_not_reach_over_the_end_of_a_document() -> None:
    held = Runs.of(["天地玄黄宇宙洪荒日月盈昃"], 5)
    assert held.found_in(["天地玄", "黄宇宙洪", "荒日月盈", "宇宙洪荒日"]).tolist() == [
        False,
        False,
        False,
        True,
    ]


def test_punctuation_does_not_hide_a_run() -> None:
    held = Runs.of(["明月几时有？把酒问青天。\n不知天上宫阙"], 13)
    assert held.found_in(["……月几时有把酒问青天不知天（上）宫阙"]).tolist() == [True]
    assert held.found_in(["月几时有把酒问青天不知天下宫阙"]).tolist() == [False]


def test_different_runs_have_different_hashes() -> None:
    generator = np.random.default_rng(1)
    text = "".join(map(chr, generator.integers(0x4E00, 0x9FA5, 200_000)))
    hashes, _ = run_hashes([text], 13)
    assert len(np.unique(hashes)) == len({text[i : i + 13] for i in range(len(text) - 12)})


def test_what_touches_a_run_is_found_where_it_stands_alone_too() -> None:
    form = Runs.of(["甲乙丙丁戊"], 5)
    touched = form.touched_in(["甲乙丙丁戊天地玄黄宇宙洪荒", "地玄黄宇宙", "戊天地玄黄"])
    told = "丙丁戊天地", "戊天地玄黄", "天地玄黄宇", "地玄黄宇宙"
    assert touched.found_in(told).tolist() == [True, False, False, False]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, max_size=6))
def test_equal_units_have_equal_numbers_wherever_they_stand(texts: list[str]) -> None:
    numbers, owner = units(texts)
    named = [unit for text in texts for unit in units_of(text)]
    assert owner.tolist() == [i for i, text in enumerate(texts) for _ in units_of(text)]
    assert (
        len(set(zip(named, numbers.tolist(), strict=True))) == len(set(named)) == len(set(numbers.tolist()))
    )
    of_han, is_han = units(han_only(texts)), np.array([bool(han_only([unit])[0]) for unit in named], bool)
    assert [part.tolist() for part in of_han] == [numbers[is_han].tolist(), owner[is_han].tolist()]


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_units_are_found_in_their_places(text: str) -> None:
    assert [text[begin:end] for begin, end in _unit_spans(text)] == units_of(text)


def test_words_are_whole_and_code_is_text() -> None:
    held = Runs.of(["用 `tiup dm start <name>` 启动集群"], 5)
    assert held.found_in(
        ["tiup dm start name 启动", "tiup-dm-start(name), 启", "tiup cluster start name 启动"]
    ).tolist() == [
        True,
        True,
        False,
    ]
    assert not held.found_in(["tiupd mstart name 启动"]).any()


def test_of_classical_text_the_han_characters_are_left() -> None:
    assert han_only(["天a地，〇\n", "〈", "b", "𠀀カ"]) == ["天地〇", "", "", "𠀀"]
