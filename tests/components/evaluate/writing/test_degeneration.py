import pytest

from yanmo.evaluate.writing.degeneration import GenreJudge, cut_alike, distinct, has_loop, variety

BLOCK = "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉"
"""The longest that counts: 20 characters."""


@pytest.mark.parametrize(
    "text", ["月" * 8, "明月，" * 3, "春江潮水连海平" + "青天" * 4, "一二三四五六七八九十" * 3, BLOCK * 3]
)
def test_a_block_that_repeats_itself_is_a_loop(text):
    assert has_loop(text)


@pytest.mark.parametrize(
    "text", ["", "月", "悠悠悠悠", "明月明月，\n明月照山山。", "一二三四五六七八九十" * 2, (BLOCK + "末") * 3]
)
def test_what_poets_repeat_is_none(text):
    assert not has_loop(text)


def test_variety_counts_over_all_texts_of_a_genre():
    found = variety(["明月。\n明月。", "", "青天"], [True, False, True])
    assert (found["texts"], found["empty"], found["ended"], found["loops"]) == (3, 0.3333, 0.6667, 0)
    assert found["repeated_lines"] == round(1 / 3, 4)
    assert found["distinct_1"] == round(6 / 9, 4)
    assert distinct(["明"], 2) is None


def test_originals_are_cut_to_the_samples_lengths():
    assert cut_alike(["明月几时有", "把酒", "青天"], ["一二", "一二三四"]) == ["明月", "把酒"]


def test_the_judge_knows_the_genres_that_it_learned():
    judge = GenreJudge({"文": ["子曰。学而时习之。不亦说乎。"] * 5, "诗": ["明月几时有，\n把酒问青天。"] * 5})
    assert judge.genres == ["诗", "文"]
    assert judge.genres_of(["把酒问明月，\n", "学而不亦说乎。"]) == ["诗", "文"]
    assert judge.genres_of([]) == []


def test_the_judge_learns_from_so_many_characters_and_judges_by_the_first_hundred(monkeypatch):
    monkeypatch.setattr("yanmo.evaluate.writing.degeneration._JUDGE_CHARACTERS", 10)
    verse, prose = "明月几时有，\n把酒问青天。", "子曰。学而时习之。不亦说乎。"
    judge = GenreJudge({"诗": [verse, prose, prose, prose], "文": [prose, verse, verse, verse]})
    assert judge.genres_of([verse, prose]) == ["诗", "文"], "of each genre the first text alone was read"
    long_verse = (verse * 8)[:100]
    assert judge.genres_of([long_verse + prose * 50]) == ["诗"]
