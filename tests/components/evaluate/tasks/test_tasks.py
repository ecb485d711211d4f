"""Tasks are made by document and seed alone, and answers are read strictly."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_chats import CHAT, chat_row
from tiny_store import GENRES, read

from yanmo.common.errors import DataError
from yanmo.curate.text.normalize import normalize
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.document_bits import load_model
from yanmo.evaluate.documents.reading import Document, read_split, turns_of
from yanmo.evaluate.tasks import asking
from yanmo.evaluate.tasks.asking import answer_all, measure_tasks, question, read_choice
from yanmo.evaluate.tasks.tasks import (
    Task,
    begun,
    choice_metrics,
    chrf,
    make_tasks,
    marks_of,
    punctuation_metrics,
)
from yanmo.evaluate.work import STEPS
from yanmo.formats.chat_tokens import Turn, prompt_ids
from yanmo.stage.run import main
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer


@pytest.fixture
def documents(ground):
    return read_split(ground.evaluation_set, "test")


def test_equal_seeds_give_equal_tasks_and_fewer_documents_give_some_of_them(documents):
    tasks = make_tasks(documents, 5, seed=0)
    assert tasks == make_tasks(documents, 5, seed=0) != make_tasks(documents, 5, seed=1)
    assert set(make_tasks(documents, 2, seed=0)) < set(tasks)
    assert [sum(t.kind == k for t in tasks) for k in ("punctuation", "genre", "next_line")] == [20] * 3


def test_the_next_line_is_one_of_four_and_follows_the_line_shown(documents):
    texts = [d.text for d in documents]
    places = set()
    for task in make_tasks(documents, 5, seed=0):
        if task.kind == "next_line":
            assert len(set(task.choices)) == 4
            assert any(f"{task.text}\n{task.answer}" in text for text in texts)
            assert sum(any(f"{task.text}\n{c}" in text for text in texts) for c in task.choices) == 1
            places.add(task.choices.index(task.answer))
    assert places == {0, 1, 2, 3}


def test_chats_and_texts_of_one_line_make_no_next_line_task():
    alone = [Document(str(i), "诗", "s", "明月") for i in range(5)]
    assert [t.kind for t in make_tasks(alone, 5, seed=0)] == ["punctuation"] * 5
    assert make_tasks([Document("1", "chat", "s", "x", turns=turns_of(chat_row(CHAT)))], 5, seed=0) == []


def test_questions_are_written_as_curated_chats_are(documents):
    asked = [question(task) for task in make_tasks(documents, 5, seed=0)]
    assert normalize(asked).texts == asked


def test_a_long_text_is_shown_by_its_first_lines():
    assert begun("明月\n" * 40) == "\n".join(["明月"] * 32)
    assert begun("明" * 500) == "明" * 96


def test_marks_count_where_they_stand_and_not_behind_other_words():
    assert marks_of("明月，几时有？", "明月几时有") == {(2, "，"), (5, "？")}
    assert marks_of("明月，几时无？", "明月几时有") == {(2, "，")}
    task = Task("punctuation", "明月几时有", "明月，几时有？")
    whole = punctuation_metrics([task], ["明月，\n几时有？"])
    assert (whole["f1"], whole["obedient"]) == (1.0, 1.0)
    half = punctuation_metrics([task] * 2, ["明月，几时有。", "好的：明月，几时有？"])
    # right 1 of 3 marks given (the colon stands behind another word), of 4 wanted
    assert (half["precision"], half["recall"], half["obedient"]) == (0.5, 0.25, 0.5)


def test_an_answer_that_is_no_choice_is_wrong_and_disobedient():
    task = Task("next_line", "明月", "青天", ("a", "b", "青天", "d"))
    assert read_choice(task, " C。") == "青天"
    for answer in ("", "选C", "E", "CC", "c"):
        assert read_choice(task, answer) is None
    genre = Task("genre", "明月", "诗", GENRES)
    assert read_choice(genre, "诗") == "诗" and read_choice(genre, "这是诗") is None
    found = choice_metrics([task] * 4, ["青天", "a", None, None])
    assert (found["accuracy"], found["obedient"], found["chance"]) == (0.25, 0.5, 0.25)
    assert all(choice in question(genre) for choice in GENRES) and "C、青天" in question(task)


def test_chrf_is_that_of_sacrebleu():
    # sacrebleu 2.6.0: CHRF().corpus_score(answers, [references]).score
    pairs = [
        ("明月几时有", "明月几时有，把酒问青天。"),
        ("不知天上", "不知天上宫阙，今夕是何年"),
        ("", "我欲"),
        ("乘风归去，又恐", "琼楼"),
    ]
    assert chrf(pairs) == pytest.approx(25.60183125498869)
    assert chrf(pairs[:1]) == pytest.approx(33.310548831508605)
    assert chrf(pairs[2:3]) == chrf(pairs[3:]) == 0.0


def test_answers_do_not_depend_on_what_is_asked_beside(ground, chat_model):
    loaded = load_model(chat_model)
    asked = [[Turn("user", text)] for text in ("明月几时有", "青天", "把酒问青天明", "明月几时无")]
    answers = answer_all(loaded, asked, 6, workers=2)
    assert answers == [answer_all(loaded, [turns], 6)[0] for turns in asked]
    assert len(prompt_ids(loaded.tokenizer, asked[0], 0)) > 5


def test_the_stage_writes_the_figures_of_a_chat_model(ground, chat_model, monkeypatch):
    monkeypatch.setattr(asking, "_MOST_TOKENS", dict.fromkeys(asking._MOST_TOKENS, 4))
    more = ("--documents", "none", "--samples", "1", "--task-documents", "2")
    argv = ground.arguments(*more, "--tasks", "chat", "--budget-documents", "3")
    assert main(STAGE, STEPS, argv) == 0
    found = read(open_reference(ground.store, read_pointer(ground.store, "dev", "evaluate")), "tasks.json")
    assert found["how"] == "chat" and found["punctuation"]["of"] == found["genre"]["of"] == 8
    assert np.isfinite(found["next_line"]["accuracy"])


def test_a_chat_has_the_figure_of_its_last_answer(ground, chat_model, monkeypatch):
    loaded, turns = load_model(chat_model), turns_of(chat_row(CHAT))
    monkeypatch.setattr(
        asking, "answer_all", lambda loaded, asked, most, **_: [turns[-1].text for _ in asked]
    )
    found = measure_tasks(
        loaded, [Document("1", "chat", "s", "x", turns=turns)], per_genre=2, seed=0, workers=1
    )
    shown = {"asked": turns[-2].text, "answer": turns[-1].text, "reference": turns[-1].text}
    assert found["chat"] == {"of": 1, "chrf": 100.0, "answers": [shown]}


def test_a_base_model_is_not_asked_in_words(ground, documents):
    with pytest.raises(DataError, match="it is no chat model; leave --tasks out"):
        measure_tasks(load_model(ground.model), documents, per_genre=2, seed=0, workers=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 30), st.integers(0, 9), st.sampled_from(["punctuation", "choice"]))
def test_an_interval_takes_no_author_for_many_witnesses(authors, poems, seed, kind):
    """So many equal answers on each author's poems are as sure as one answer is."""
    right = np.random.default_rng(seed).random(authors) < 0.5
    one = [Task(kind, "明月", "明，月", ("明，月", "x"), f"诗 author {i}") for i in range(authors)]
    said = ["明，月" if yes else "明月" for yes in right]
    figures = choice_metrics if kind == "choice" else punctuation_metrics
    once, many = figures(one, said), figures(one * poems, said * poems)
    assert many["interval"] == once["interval"] and many["of"] == poems * authors
    alone = [dataclasses.replace(task, group="") for task in one]
    assert figures(alone, said)["interval"] == once["interval"], "who stands alone is drawn as before"


def test_tasks_know_what_their_documents_hang_together_with():
    texts = [
        ("1", "a", "明月\n青天"),
        ("2", "a", "春风\n秋水"),
        ("3", "", "白日\n黄河"),
        ("4", "b", "何处\n几时"),
    ]
    shi = [Document(i, "诗", "s", t, group=g and f"author {g}") for i, g, t in texts]
    ci = [dataclasses.replace(d, id=f"c{d.id}", genre="词") for d in shi]
    tasks = make_tasks([*shi, *ci], 5, seed=0)
    assert {t.group for t in tasks} == {"", "诗 author a", "诗 author b", "词 author a", "词 author b"}
    for kind in ("punctuation", "genre", "next_line"):
        groups = [t.group for t in tasks if t.kind == kind]
        assert len(groups) == 8 and groups.count("诗 author a") == groups.count("词 author a") == 2
