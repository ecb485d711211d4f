"""Each rule of verse on famous poems that obey it, and on the same ones spoilt."""

import numpy as np
import pytest

from yanmo.common.bootstrap import generator_for
from yanmo.evaluate.verse import chance
from yanmo.evaluate.verse.parallel import Pairs, middle_couplets, mismatched
from yanmo.evaluate.verse.verse_rules import RULES, Text
from yanmo.evaluate.verse.verse_table import learn, verse_table
from yanmo.verse import sound
from yanmo.verse.poems import read_poem
from yanmo.verse.tunes import Tunes, tune_of

HEIGHTS = read_poem("白日依山尽，黄河入海流。欲穷千里目，更上一层楼。")  # 王之涣 登鹳雀楼
SPRING = read_poem(  # 杜甫 春望
    "国破山河在，城春草木深。感时花溅泪，恨别鸟惊心。烽火连三月，家书抵万金。白头搔更短，浑欲不胜簪。"
)


@pytest.mark.parametrize("poem", [HEIGHTS, SPRING])
def test_famous_poems_rhyme_and_keep_their_tones(poem):
    lines = len(poem.lines)
    assert sound.whole_rhyme(poem) == (1, 1)
    assert sound.even_pairs(poem) == (lines // 2 - 1, lines // 2 - 1)
    assert sound.alternation(poem) == (lines, lines)
    assert sound.opposition(poem) == (lines // 2, lines // 2)
    assert sound.adhesion(poem) == (lines // 2 - 1, lines // 2 - 1)
    assert sound.mixed_ending(poem)[0] == sound.mixed_ending(poem)[1] == lines


def test_rhymes_are_those_of_pingshui_and_not_of_modern_finals():
    # 斜 and 家 rhyme in 下平六麻, though now read xie and jia; 东 and 冬 are two rhymes, though read alike.
    assert sound.even_pairs(read_poem("一，斜。一，家。")) == (1, 1)
    assert sound.even_pairs(read_poem("一，东。一，冬。")) == (0, 1)


def test_spoilt_poems_are_found():
    spoilt = read_poem("白日依山尽，黄河入海底。欲穷千里目，更上一层楼。")
    assert sound.whole_rhyme(spoilt) == (0, 1)
    assert sound.alternation(read_poem("山河依天流。")) == (0, 1)
    assert sound.opposition(read_poem("白日依山尽，白日依山尽。")) == (0, 1)
    assert sound.adhesion(read_poem("白日依山尽，黄河入海流。白日依山尽，黄河入海流。")) == (0, 1)
    assert sound.mixed_ending(read_poem("白日山河流。")) == (0, 1)
    assert sound.no_lone_level(read_poem("白河入海流。")) == (0, 1)  # 仄平仄仄平


def test_a_character_that_the_table_does_not_know_is_not_held_against_a_poem():
    assert sound.whole_rhyme(read_poem("一，㐂。一，家。")) == (0, 0)
    assert sound.alternation(read_poem("白㐂依山尽。")) == (0, 0)
    assert sound.whole_rhyme(read_poem("")) == (0, 0)


@pytest.mark.parametrize(
    ("title", "tune"),
    [
        ("临江仙", "临江仙"),
        ("临江仙·梦后楼台", "临江仙"),
        ("雁后归・临江仙", "临江仙"),
        (" 临江仙 ", "临江仙"),
    ],
)
def test_a_title_names_its_tune(title, tune):
    assert tune_of(title) == tune


def test_a_pattern_that_two_texts_share_is_usual_and_another_is_not():
    tunes = Tunes.learn(
        [("甲", "明月。\n几时有。"), ("甲", "青天。\n问明月。"), ("甲", "明。\n月。"), ("乙", "明月。")]
    )
    poem = read_poem("天上。\n宫阙今。")
    assert tunes.by_tune == {"甲": frozenset({(2, 3)})}
    assert tunes.own(poem, "甲·天上") == (1, 1) and tunes.any(poem) == (1, 1)
    assert tunes.own(poem, "乙") == tunes.own(poem, None) == (0, 0)
    assert tunes.any(read_poem("天上。")) == (0, 1)
    assert tunes.any(read_poem("天上。\n宫阙今。", whole=False)) == (0, 1)


def couplets(number, seed):
    """First lines draw from one set of characters, second ones from their partners."""
    draw, pairs = (
        np.random.default_rng(seed),
        [("山", "水"), ("天", "地"), ("花", "鸟"), ("红", "绿"), ("春", "秋")],
    )
    result = []
    for _ in range(number):
        chosen = [pairs[i] for i in draw.integers(len(pairs), size=5)]
        result.append(tuple("".join(p[side] for p in chosen) for side in (0, 1)))
    return result


def test_couplets_of_known_partners_are_parallel_and_mixed_ones_are_not():
    pairs = Pairs.learn(couplets(200, 0), generator_for(0, "test"))
    fresh = couplets(100, 1)
    good = [pairs.score(c) > pairs.threshold for c in fresh]
    bad = [pairs.score(c) > pairs.threshold for c in mismatched(fresh, generator_for(1, "test"))]
    assert sum(good) == 100 and sum(bad) < 20
    assert pairs.score(("谁", "何")) == 0.0


def test_middle_couplets_are_those_of_eight_lines():
    assert middle_couplets(SPRING)[0] == ("感时花溅泪", "恨别鸟惊心")
    assert middle_couplets(HEIGHTS) == []


@pytest.mark.parametrize("name", sorted(chance.SCRAMBLES))
def test_scrambled_poems_are_as_many_and_of_their_parts(name):
    poems = [HEIGHTS, SPRING]
    scrambled = chance.SCRAMBLES[name](poems, generator_for(0, name))
    assert [len(p.lines) for p in scrambled] == [4, 8]
    assert set("".join("".join(p.lines) for p in scrambled)) <= set("".join(HEIGHTS.lines + SPRING.lines))
    assert scrambled != poems


def test_the_table_shows_originals_chance_and_the_models_texts():
    knowledge = learn(
        [
            ("诗", "t", "".join(SPRING.lines)),
            ("词", "甲", "明月。"),
            ("词", "甲", "青天。"),
            ("文", "x", "子曰。"),
        ]
    )
    held_out = {
        "诗": [Text(HEIGHTS, "登鹳雀楼"), Text(SPRING, "春望")] * 10,
        "词": [Text(read_poem("宫阙。"), "甲")],
    }
    generated = {"诗": [Text(read_poem("白日依山尽，明月。"), None)]}
    rows = {row["name"]: row for row in verse_table(knowledge, held_out, generated)}
    assert list(rows) == [rule.name for rule in RULES]
    assert rows["rhyme"]["held_out"] == {"of": 20, "share": 1.0, "interval": [0.8389, 1.0]}
    assert rows["rhyme"]["chance"]["share"] < 0.5
    assert rows["rhyme"]["generated"] == {"of": 0, "share": None, "interval": None}
    assert rows["form"]["generated"]["share"] == 0.0
    assert rows["own_tune"]["held_out"]["share"] == 1.0
    assert rows == {row["name"]: row for row in verse_table(knowledge, held_out, generated)}


def test_no_texts_at_all_give_a_table_without_shares():
    for row in verse_table(learn([]), {}, {"诗": [Text(read_poem(""), None)]}):
        assert row["held_out"]["share"] is row["chance"]["share"] is None
