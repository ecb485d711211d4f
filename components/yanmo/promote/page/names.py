"""Names of stages, columns, genres and reasons on the page, in both languages."""

from __future__ import annotations

from yanmo.common.pages.html import cut
from yanmo.promote.gate.limits import VERSE
from yanmo.promote.gate.verdict import Words

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
    "with genre tag": "带体裁标记",
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
    "writing": "写作",
    "contamination": "数据污染",
    "seed_noise": "种子噪声",
    "promote": "晋升判定",
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
    # memorization, degeneration
    "copied_8grams": "照抄的八字片段",
    "longest_copy": "最长照抄（字）",
    "loops": "陷入循环的篇",
    "repeated_lines": "篇内重句",
    "distinct_1": "不同的单字",
    "distinct_2": "不同的字对",
    "distinct_3": "不同的三字",
    "genre_obedience": "体裁相符的篇",
    "ended": "自行收尾的篇",
    # tasks
    "task_genre": "辨体裁",
    "task_next_line": "选下句（四选一）",
    "task_punctuation": "补标点",
    "task_chat": "答末问",
    "accuracy": "正确率",
    "f1": "F1",
    "precision": "准确率",
    "recall": "召回率",
    "chrf": "chrF",
    # what rules of verse look at
    "poems": "首",
    "regular poems": "首近体",
    "pairs": "对句末",
    "lines of regular poems": "句（近体）",
    "lines of any poem": "句（各体）",
    "couplets": "联",
    "joints": "处联间",
    "level endings": "平收句",
    "lines": "句",
    "characters": "字",
    "poems of known tunes": "首（词牌已知）",
    **{name: rule.zh for name, rule in VERSE.items()},
}
_EN = {
    "copied_8grams": "copied runs of eight characters",
    "longest_copy": "longest copied run, characters",
    "loops": "texts with a loop",
    "repeated_lines": "lines repeated in their text",
    "distinct_1": "different characters",
    "distinct_2": "different pairs of characters",
    "distinct_3": "different runs of three characters",
    "genre_obedience": "texts of the genre asked for",
    "ended": "texts that end by themselves",
    "task_genre": "name the genre",
    "task_next_line": "find the next line, one of four",
    "task_punctuation": "restore punctuation",
    "task_chat": "answer the last question",
    "f1": "F1",
    "chrf": "chrF",
}


def called(name: str, title: str = "") -> Words:
    """A name of ours as a person reads it; any other name as it is.

    Args:
        title: what it is called in English, where that is not the name itself.
    """
    english = title or _EN.get(name, name.replace("_", " "))
    return Words(cut(english), cut(_ZH.get(name, _ZH.get(english, english))))


def gloss(genre: str) -> str:
    """Return what the genre is called in English; empty for one that we do not know."""
    return _GENRES.get(genre, "")
