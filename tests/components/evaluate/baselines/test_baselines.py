import numpy as np
import pyppmd

from yanmo.evaluate.baselines.baselines import ppmd_bits, xz_results
from yanmo.evaluate.baselines.compressors import added_by_ppmd, added_by_xz
from yanmo.evaluate.baselines.mixture import fit_weights, mixture_bits
from yanmo.evaluate.baselines.ngram import NgramModel
from yanmo.evaluate.documents.reading import Document

LETTERS = {"诗": "明月几时有把酒", "文": "有把酒问青天"}
HALVES = (slice(0, 20), slice(20, 40))
TEXTS = ["明月几时有，\n把酒问青天。", "不知天上宫阙，\n今夕是何年。", "我欲乘风归去。"]


def test_xz_counts_documents_and_their_line_breaks_and_divides_by_characters():
    scored = [Document("1", "词", "s", "又恐琼楼玉宇，\n高处不胜寒。"), Document("2", "词", "s", "明月")]
    figures = xz_results(TEXTS, scored)["genres"]["词"]
    prefix = ("\n".join(TEXTS) + "\n").encode()
    size = added_by_xz(prefix, ["又恐琼楼玉宇，\n高处不胜寒。\n明月".encode()])[0]
    assert figures == {"documents": 2, "characters": 15, "bits_per_character": round(8 * size / 15, 4)}


def test_ppmd_after_the_training_text_adds_what_one_whole_run_adds():
    prefix = ("\n".join(TEXTS * 50) + "\n").encode()
    texts = ["又恐琼楼玉宇，\n".encode(), "高处不胜寒。\n".encode() * 20]
    whole = pyppmd.Ppmd7Encoder(6, 1 << 24)
    expected = [len(whole.encode(prefix)), *(len(whole.encode(text)) for text in texts)][1:]
    assert added_by_ppmd(prefix, [texts, texts[1:]])[0] == expected
    assert added_by_ppmd(prefix, []) == []


def test_ppmd_counts_each_document_and_what_it_has_read_is_cheap():
    scored = [Document("1", "文", "s", TEXTS[0] * 9), Document("2", "诗", "s", "丁丂七丄丅" * 10)]
    known, strange = ppmd_bits(TEXTS * 20, scored) / [d.characters for d in scored]
    assert known < 1 and strange > 2


def test_the_mixture_of_one_genre_is_the_ngram():
    scored = [Document("1", "词", "s", "明月青天"), Document("2", "诗", "s", "今夕")]
    plain, mixed, weights = mixture_bits({"词": TEXTS}, scored, scored)
    np.testing.assert_allclose(plain, NgramModel.train(TEXTS).document_bits(["明月青天", "今夕"]))
    np.testing.assert_allclose(mixed, plain, atol=1e-4)
    assert weights["词"] == {"all": 0.5, "词": 0.5}


def test_the_mixture_leans_on_the_genre_at_hand_and_gains_by_it():
    draw = np.random.default_rng(0)
    texts = {
        g: ["".join(draw.choice(list(letters), 12)) for _ in range(80)] for g, letters in LETTERS.items()
    }
    fitted, scored = ([Document(t, g, "s", t) for g in texts for t in texts[g][part]] for part in HALVES)
    training = {g: texts[g][40:] for g in texts}
    plain, mixed, weights = mixture_bits(training, fitted, scored)
    assert weights["诗"]["诗"] > 0.5 > weights["诗"]["文"] and weights["文"]["文"] > 0.5
    assert mixed.sum() < plain.sum()
    rotated = mixture_bits(training, fitted, scored[::-1])[1]
    np.testing.assert_allclose(rotated[::-1], mixed, atol=1e-3)


def test_weights_are_the_best_and_none_are_needed_without_symbols():
    bits = np.array([[1.0, 9.0, 1.0, 1.0], [9.0, 1.0, 9.0, 9.0]])
    assert fit_weights(bits).round(2).tolist() == [0.75, 0.25]
    assert fit_weights(np.empty((2, 0))).tolist() == [0.5, 0.5]
