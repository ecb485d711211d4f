"""Forms of verse: what they demand, which of them are known, and that real poems have them."""

from __future__ import annotations

import functools
import json

import opencc
import pytest
import zstandard
from verse_judge import passes

from yanmo.verse.ci_tunes import main as learn
from yanmo.verse.forms import REGULAR, form_of, known_forms, tunes
from yanmo.verse.poems import read_poem
from yanmo.verse.sound import is_regulated
from yanmo.verse.steps import Steps
from yanmo.verse.tunes import tune_of

BAIDI = "朝辞白帝彩云间，千里江陵一日还。\n两岸猿声鸣不住，轻舟已过万重山。"  # 啼 is not in the table
DENG = "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。"
SONG = (
    "一曲新词酒一杯。\n去年天气旧亭台。\n夕阳西下几时回。\n无可奈何花落去，似曾相识燕归来。\n小园香径独徘徊。"
)


@functools.cache
def machine(name: str, rhyme: str, tone: str) -> Steps:
    form = form_of(name, rhyme, tone)
    return Steps(form, tuple(groups for _, groups in form.rhymes))


def fits(text: str, name: str, rhyme: str = "", tone: str = "strict") -> bool:
    steps = machine(name, rhyme, tone)
    state = steps.start
    for character in text:
        state = state and steps.after(state, character)
    return state is not None and steps.is_done(state)


def test_poems_that_everybody_knows_have_their_form_and_rhyme():
    assert fits(BAIDI, "七绝", "删") and fits(BAIDI, "七绝", "山") and fits(DENG, "五绝", "尤")
    assert not fits(BAIDI, "七绝", "东") and not fits(BAIDI, "五绝") and not fits(BAIDI + "山", "七绝")
    assert passes(BAIDI, form_of("七绝")) and not passes(BAIDI, form_of("七律"))
    assert fits(SONG, "浣溪沙", "灰") and passes(SONG, form_of("浣溪沙")) and not fits(SONG, "菩萨蛮")


@pytest.mark.parametrize(
    ("old", "new", "fit", "why"),
    [
        ("朝辞白帝", "朝辞白天", (), "the fourth must be oblique"),
        ("朝辞", "晓辞", ("strict", "loose"), "the first is free"),
        ("重山。", "重还。", (), "no character rhymes twice"),
        ("彩云间", "彩云飞", (), "the first line rhymes, where it ends level"),
        ("彩云间", "彩云去", ("strict", "loose"), "and need not where it ends oblique"),
        ("辞白帝", "辞啼帝", ("strict", "loose"), "a character of unknown tone, where either will do"),
        ("猿声鸣", "猿声啼", ("loose",), "and where one would make 三仄尾"),
        ("万重山", "千重山", ("loose",), "三平尾"),
    ],
)
def test_one_other_character_is_seen(old, new, fit, why):
    assert old in BAIDI
    text = BAIDI.replace(old, new)
    assert tuple(tone for tone in ("strict", "loose") if fits(text, "七绝", tone=tone)) == fit, why
    assert fits(text, "七绝", tone="free") == (why not in ("no character rhymes twice",))


def test_a_lone_level_character_is_refused_where_the_rules_refuse_it():
    lone = DENG.replace("黄河", "大河")
    assert fits(DENG, "五绝") and fits(lone, "五绝", tone="loose")
    assert not fits(lone, "五绝") and not passes(lone, form_of("五绝"))


def test_what_the_machine_takes_passes_the_rules_and_most_poems_that_pass_are_taken(corpus):
    simple = opencc.OpenCC("t2s").convert
    poems = [simple(record["text"]) for record in corpus if record["genre"] == "诗"][:1200]
    taken = regulated = both = 0
    for text in poems:
        name, rules = read_poem(text).form, is_regulated(read_poem(text))
        if name and text.count("\n") * 4 == len(read_poem(text).lines) * 2 - 4:  # a line for each couplet
            is_taken = fits(text, name)
            assert rules or not is_taken, text
            taken, regulated, both = taken + is_taken, regulated + rules, both + (rules and is_taken)
    # Others rhyme in their first line with a neighbouring rhyme, or twice with one character, or bind one
    # that the table does not have.
    assert regulated > 300 and both > 0.6 * regulated, (taken, both, regulated)


def test_the_tunes_are_those_that_the_corpus_teaches(repo_root, capsys):
    learn(str(repo_root / "corpus/small.jsonl.zst"))
    table = (repo_root / "components/yanmo/verse/ci_tunes.txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == table
    assert tunes()["菩萨蛮"].startswith("中平中仄平平仄a。中平中仄平平仄a。中仄仄平平b。中平中仄平b。")


def test_songs_that_the_machine_takes_have_the_pattern_of_their_tune(corpus):
    songs = [(tune_of(r["title"]), r["text"]) for r in corpus if r["genre"] == "词"]
    taken = [(tune, text) for tune, text in songs if tune in tunes() and fits(text, tune)]
    assert all(passes(text, form_of(tune)) for tune, text in taken)
    assert len(taken) > 100, "most songs rhyme more widely than 平水韵, or are of another form"


@pytest.fixture(scope="session")
def repo_root(request):
    return request.config.rootpath


@pytest.fixture(scope="session")
def corpus(repo_root):
    data = zstandard.ZstdDecompressor().stream_reader((repo_root / "corpus/small.jsonl.zst").read_bytes())
    return [json.loads(line) for line in data.read().decode().splitlines()]


def test_all_known_forms_can_be_made_with_each_tone_and_the_sizes_are_theirs():
    for name, _ in known_forms():
        for tone in ("strict", "loose", "free"):
            form = form_of(name, tone=tone)
            assert len(form.shape) == len(form.marks) and form.rhymes
    assert {name: form_of(name).shape for name in REGULAR} == {n: (w,) * k for n, (k, w) in REGULAR.items()}
    most = {name: form_of(name).num_rhyming for name in (*REGULAR, "浣溪沙")}
    assert most == {"五绝": 3, "五律": 5, "七绝": 3, "七律": 5, "浣溪沙": 5}, "the first line may rhyme too"
    assert len(known_forms()) == 4 + len(tunes()) >= 50


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("八股",), "expected 五绝"),
        (("七绝", "屋"), "a level rhyme"),
        (("点绛唇", "东"), "an oblique rhyme"),
        (("七绝", "A"), "a level rhyme"),
        (("七绝", "", "wild"), "strict, loose, free"),
    ],
)
def test_what_cannot_be_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        form_of(*given)


def test_a_rhyme_that_is_asked_for_is_that_of_the_first_lines_that_rhyme():
    free, asked = dict(form_of("菩萨蛮").rhymes), dict(form_of("菩萨蛮", "月").rhymes)
    assert len(asked["a"]) == 1 and asked["a"] < free["a"]
    assert all(asked[letter] == free[letter] for letter in "bcd")
