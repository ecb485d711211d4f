"""What stages, columns, genres and reasons are called on the page, in both languages."""

from __future__ import annotations

from yanmo.promote.words import Words

_GENRES = {
    "诗": "shi, poems",
    "词": "ci, songs",
    "文": "wen, prose",
    "赋": "fu, rhapsodies",
    "曲": "qu, arias",
}

_ZH = {
    # columns
    "challenger": "挑战者",
    "champion": "现任冠军",
    "with tag": "提示体裁",
    "5-gram": "五元模型",
    "5-gram mixture": "五元混合模型",
    "xz -9e": "xz -9e",
    # stages and parts
    "curate": "整理",
    "balance": "配比",
    "tokenize": "切分",
    "tokenizer": "词表",
    "evaluation_set": "评测集",
    "train": "训练",
    "evaluate": "评测",
    "baselines": "基线",
    "promote": "裁决",
    # why documents were dropped
    "evaluation_set held": "留作评测集",
    "too_short": "过短",
    "too_long": "过长",
    "not_han": "汉字过少",
    "private_use": "私用区字符",
    "lacuna": "缺字过多",
    "stub": "残篇",
    "duplicate": "重复",
    "near_duplicate": "近似重复",
    "overlap": "与评测集重叠",
    "benchmark": "与基准测试重叠",
    "excluded": "按要求撤下",
    # memorization, degeneration, contamination
    "copied_8grams": "照抄的八字片段比例",
    "longest_copy": "最长照抄（字）",
    "loops": "循环比例",
    "repeated_lines": "重句比例",
    "distinct_1": "不同单字比例",
    "distinct_2": "不同字对比例",
    "distinct_3": "不同三字比例",
    "genre_obedience": "体裁相符比例",
    "ended": "自行收尾比例",
    "contamination_share": "见于训练文本的评测文本比例",
    "contamination_window": "判定所用的连续字数",
    # rules of verse
    "form": "四句或八句，五言或七言",
    "equal_lines": "句数为偶，五言或七言",
    "rhyme": "偶句通押平水韵",
    "rhyme_pairs": "相邻偶句押韵",
    "alternation": "二四六平仄相间（近体）",
    "alternation_any": "二四六平仄相间（各体）",
    "opposition": "对：一联之内平仄相对",
    "adhesion": "粘：两联之间平仄相粘",
    "no_lone_level": "不犯孤平",
    "mixed_ending": "不犯三平尾、三仄尾",
    "parallel": "中间两联对仗（近似判断）",
    "fresh": "诗中不重字",
    "own_tune": "合本词牌常见句式",
    "any_tune": "合某词牌常见句式",
    "sentence_rhyme": "相邻韵句押韵",
}


def called(name: str, title: str = "") -> Words:
    """A name of ours as a person reads it; any other name as it is.

    Args:
        title: what it is called in English, where that is not the name itself.
    """
    english = title or name.replace("_", " ")
    return Words(english, _ZH.get(name, _ZH.get(english, english)))


def gloss(genre: str) -> str:
    """What the genre is called in English; empty for one that we do not know."""
    return _GENRES.get(genre, "")
