"""The 5-gram against a second, slow implementation with strings and dictionaries, and by hand."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from yanmo.evaluate.baselines.ngram import UNSEEN_CHARACTERS, NgramModel, discounts

POEMS = [
    "床前明月光,\n疑是地上霜。\n举头望明月,\n低头思故乡。",
    "白日依山尽,\n黄河入海流。\n欲穷千里目,\n更上一层楼。",
    "春眠不觉晓,\n处处闻啼鸟。\n夜来风雨声,\n花落知多少。",
    "千山鸟飞绝,\n万径人踪灭。\n孤舟蓑笠翁,\n独钓寒江雪。",
    "明月几时有,\n把酒问青天。\n明月明月,\n明月照山山。",
]


class SlowKneserNey:
    """Modified Kneser-Ney written straight from the formulas; contexts are tuples of strings."""

    def __init__(self, documents, order):
        self.order = order
        grams = [Counter() for _ in range(order + 1)]
        for text in documents:
            symbols = ["<s>", *text, "</s>"]
            for n in range(1, order + 1):
                for i in range(len(symbols) - n + 1):
                    grams[n][tuple(symbols[i : i + n])] += 1
        left = [defaultdict(set) for _ in range(order + 1)]
        for n in range(2, order + 1):
            for gram in grams[n]:
                left[n - 1][gram[1:]].add(gram[0])
        self.adjusted = [{} for _ in range(order + 1)]
        for n in range(1, order + 1):
            for gram, count in grams[n].items():
                if n == 1 and gram == ("<s>",):
                    continue
                raw = n == order or gram[0] == "<s>"
                self.adjusted[n][gram] = count if raw else len(left[n][gram])
        self.discount = [None] + [self._discounts(n) for n in range(1, order + 1)]
        self.words = {gram[0] for gram in self.adjusted[1]} | {"<unk>"}
        self.after = [defaultdict(list) for _ in range(order + 1)]
        for n in range(1, order + 1):
            for gram, count in self.adjusted[n].items():
                self.after[n][gram[:-1]].append(count)

    def _discounts(self, n):
        t = Counter(self.adjusted[n].values())
        if not all(t[k] for k in (1, 2, 3, 4)):
            return [0, 0.5, 1.0, 1.5]
        y = t[1] / (t[1] + 2 * t[2])
        return [0] + [k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3)]

    def probability(self, word, context):
        context = tuple(context)[-(self.order - 1) :]
        if context and context not in self.after[len(context) + 1]:
            return self.probability(word, context[1:])
        n = len(context) + 1
        counts = self.after[n][context]
        discount = self.discount[n]
        total = sum(counts)
        given = sum(discount[min(c, 3)] for c in counts) / total
        lower = self.probability(word, context[1:]) if context else 1 / len(self.words)
        own = self.adjusted[n].get((*context, word), 0)
        return (own - discount[min(own, 3)]) / total + given * lower


@pytest.mark.parametrize("order", [2, 3, 5])
def test_every_symbol_costs_what_the_slow_implementation_says(order):
    model, slow = NgramModel.train(POEMS, order), SlowKneserNey(POEMS, order)
    for text in [*POEMS, "明月山上", "黄河明月\n\n光", "。", ""]:
        symbols, expected = ["<s>", *text, "</s>"], []
        for i in range(1, len(symbols)):
            known = symbols[i] if symbols[i] in slow.words else "<unk>"
            bits = -np.log2(slow.probability(known, symbols[:i]))
            expected.append(bits + (np.log2(UNSEEN_CHARACTERS) if known == "<unk>" else 0))
        np.testing.assert_allclose(model.symbol_bits([text]), expected, rtol=1e-12)


@pytest.mark.parametrize("context", ["", "明", "明月", "举头望明", "天地玄黄", "霜。\n"])
def test_probabilities_after_any_context_sum_to_one(context):
    model = NgramModel.train(POEMS)
    ends = model.symbol_bits([context])[-1]
    followers = [model.symbol_bits([context + c])[len(context)] for c in model.characters]
    unknown = model.symbol_bits([context + "\U0002a6a5"])[len(context)] - np.log2(UNSEEN_CHARACTERS)
    total = np.exp2(-np.array([ends, unknown, *followers])).sum()
    assert total == pytest.approx(1, abs=1e-12)
    assert model.vocabulary == len(followers) + 2


def test_discounts_follow_chen_and_goodman():
    # n1..n4 = 100, 40, 20, 10: Y = 100/180
    y = 100 / 180
    expected = [0, 1 - 2 * y * 0.4, 2 - 3 * y * 0.5, 3 - 4 * y * 0.5]
    np.testing.assert_allclose(discounts(np.array([0, 100, 40, 20, 10])), expected)


@pytest.mark.parametrize("degenerate", [[0, 5, 0, 0, 0], [0, 1, 1, 1, 9], [0, 0, 0, 0, 0], [0, 10, 5, 50, 1]])
def test_degenerate_counts_of_counts_use_the_fallback(degenerate):
    assert discounts(np.array(degenerate)).tolist() == [0, 0.5, 1, 1.5]


def test_a_document_does_not_see_the_one_before():
    model = NgramModel.train(POEMS)
    alone = model.document_bits(["明月"])[0]
    assert model.document_bits(["举头望", "明月"])[1] == pytest.approx(alone, abs=1e-12)


def test_lone_surrogates_and_empty_documents_are_symbols_like_others():
    model = NgramModel.train(["", "\ud800明"])
    assert np.isfinite(model.document_bits(["\udfff", "\ud800"])).all()


def test_every_symbol_costs_what_kenlm_says():
    # kpu/kenlm 4cb443e, one token per character: `lmplz -o 5 --discount_fallback`, `query -v word`; its
    # ARPA file holds float32 with seven digits. On the 3.5 M characters of the bundled corpus the largest
    # difference over 132,728 symbols was 3.5e-6 bits (without the fallback).
    kenlm = [3.08657, 0.232086, 8.224631, 7.189606, 7.740373, 7.740373, 0.986569]
    kenlm += [6.818484, 0.508802, 8.189606, 7.189606, 7.740373, 7.740373]
    ours = NgramModel.train(POEMS).symbol_bits(["明月山上", "黄河明月\n\n光"])
    assert "\n" in NgramModel.train(POEMS).characters
    np.testing.assert_allclose(ours, kenlm, atol=2e-6)
