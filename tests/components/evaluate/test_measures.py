import json

import numpy as np

from yanmo.evaluate.documents.reading import Document
from yanmo.evaluate.measures import Bootstrap, summarize

DRAWS = Bootstrap(draws=400, seed=0)


def documents(**numbers):
    return [
        Document(id=f"{genre}{i}", genre=genre, source=f"a/{genre}/x", text="明月\n" * (i + 1))
        for genre, number in numbers.items()
        for i in range(number)
    ]


def test_figures_are_sums_of_bits_over_sums_of_characters():
    docs = documents(诗=3, 赋=2)  # characters 2 4 6 and 2 4
    figures = summarize(docs, np.array([10.0, 20.0, 6.0, 9.0, 9.0]), DRAWS)
    assert figures["genres"]["诗"]["bits_per_character"] == 3.0
    assert figures["genres"]["赋"]["bits_per_character"] == 3.0
    assert figures["mean"]["bits_per_character"] == 3.0
    total = figures["total"]
    assert (total["documents"], total["characters"], total["bits_per_character"]) == (5, 18, 3.0)
    assert figures["sources"]["a/赋"]["documents"] == 2


def test_perplexity_is_that_of_a_character_and_of_a_token():
    docs = documents(诗=2)  # 6 characters
    figures = summarize(docs, np.array([6.0, 12.0]), DRAWS, tokens=np.array([1, 5], np.int32))
    for part in (figures["genres"]["诗"], figures["total"]):
        assert part["perplexity_per_character"] == 8.0
        assert part["perplexity_per_token"] == 8.0 and part["tokens"] == 6
    assert figures["mean"]["perplexity_per_character"] == 8.0
    endless = summarize(docs, np.array([1e5, 1e5]), DRAWS)["total"]
    assert endless["perplexity_per_character"] is None
    json.dumps(endless, allow_nan=False)


def test_documents_are_also_grouped_by_their_length():
    docs = [Document(str(n), "文", "s", "明" * n) for n in (1, 31, 32, 100, 1023, 1024, 5000)]
    lengths = summarize(docs, np.array([2.0 * d.characters for d in docs]), DRAWS)["lengths"]
    assert list(lengths) == ["0-31", "32-63", "64-127", "512-1023", "1024-"]
    assert [part["documents"] for part in lengths.values()] == [2, 1, 1, 1, 2]
    assert lengths["32-63"]["interval"] is None and lengths["1024-"]["interval"] == [2.0, 2.0]
    assert all(part["few_documents"] for part in lengths.values())


def test_intervals_of_total_and_source_hold_their_figure():
    docs = documents(诗=60, 赋=40)
    bits = np.random.default_rng(3).normal(50, 9, 100)
    figures = summarize(docs, bits, DRAWS)
    for part in (figures["total"], figures["sources"]["a/诗"], figures["sources"]["a/赋"]):
        low, high = part["interval"]
        assert low < part["bits_per_character"] < high
    # The total's documents are drawn within their genre, so that no draw has other shares of the genres.
    widths = [np.ptp(f["interval"]) for f in (figures["total"], *figures["sources"].values())]
    assert widths[0] < min(widths[1:])


def test_genres_of_the_corpus_come_first_and_others_by_name():
    docs = documents(曲=1, 赋=1, 诗=1, 乐=1)
    assert list(summarize(docs, np.ones(4), DRAWS)["genres"]) == ["诗", "赋", "乐", "曲"]


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    draw, hits = np.random.default_rng(1), 0
    for seed in range(200):
        docs = [Document(str(i), "诗", "s", "明" * 10) for i in range(50)]
        figures = summarize(docs, draw.normal(80, 10, 50), Bootstrap(400, seed))["genres"]["诗"]
        hits += figures["interval"][0] <= 8.0 <= figures["interval"][1]
    assert 180 <= hits <= 198  # 95 % of 200 is 190; a percentile bootstrap of 50 is a little narrow


def test_one_document_has_no_interval():
    figures = summarize(documents(诗=1), np.array([5.0]), DRAWS)
    assert figures["genres"]["诗"]["interval"] is None
    assert figures["mean"]["interval"] is None
    json.dumps(figures, allow_nan=False)


def test_a_genre_without_tag_has_no_tagged_figure():
    docs = documents(诗=2, 曲=2)
    tagged = np.array([4.0, 8.0, np.nan, np.nan])
    figures = summarize(docs, np.array([8.0, 16.0, 9.0, 9.0]), DRAWS, tagged)
    assert figures["genres"]["诗"]["with_tag"] == 2.0
    assert figures["genres"]["曲"]["with_tag"] is None
    assert figures["mean"]["with_tag"] is None
    json.dumps(figures, allow_nan=False)


def test_equal_seeds_give_equal_intervals_and_one_genre_does_not_move_another():
    docs = documents(诗=30, 词=20)
    bits = np.random.default_rng(2).normal(50, 9, 50)
    first = summarize(docs, bits, DRAWS)
    assert first == summarize(docs, bits, DRAWS)
    assert summarize(docs[:30], bits[:30], DRAWS)["genres"]["诗"] == first["genres"]["诗"]
