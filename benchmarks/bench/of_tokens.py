"""Segmentation: megabytes of Chinese text per CPU second of one thread."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.declared import Benchmark, Group, Place
from bench.rounds import times_a_cpu_second

if TYPE_CHECKING:
    from yanmo.tokenize.vocabulary import Vocabulary

_CORPUS = Path(__file__).parents[2] / "corpus" / "small.jsonl.zst"
_MEGABYTES = 3.0
_PIECES = 8192
_SLOW, _SLOWER = 4, 16
"""One document in this many is enough of a contestant that is slow."""


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The bundled text, and a vocabulary of the demo's size that was chosen on it."""
    del place
    os.environ["RAYON_NUM_THREADS"] = "1"  # before tokenizers is imported: it would use every core
    import pyarrow as pa
    import rjieba

    from yanmo.tokenize.lexicon import jieba_tokenizer
    from yanmo.tokenize.segmenter import Segmenter

    docs = _documents()
    texts = [d["text"] for d in docs]
    column = pa.array(texts)
    vocabulary = _vocabulary(column, pa.array([d["genre"] for d in docs]))
    segmenter = Segmenter.of(vocabulary.pieces, vocabulary.scores, 3)
    few, fewer, jieba = texts[::_SLOW], texts[::_SLOWER], jieba_tokenizer()
    yield [
        Group(
            ("Words or pieces of Chinese text", "把中文切成词或词元"),
            {
                f"yanmo, {_PIECES:,} pieces": _speed(texts, lambda: segmenter.encode(column)),
                "jieba (words, HMM off)": _speed(fewer, lambda: [jieba.lcut(t, HMM=False) for t in fewer]),
                "rjieba (words, HMM off)": _speed(texts, lambda: [rjieba.cut(t, False) for t in texts]),
                f"Hugging Face Unigram, the same {_PIECES:,}": _speed(
                    few, lambda: segmenter.reference.encode_batch_fast(few)
                ),
            },
        )
    ]


def _documents() -> list[dict[str, str]]:
    """Documents of the bundled corpus, up to so much text."""
    import zstandard

    found, size = [], 0
    with zstandard.open(_CORPUS, "rb") as file:
        for line in io.TextIOWrapper(file, encoding="utf-8"):
            found.append(json.loads(line))
            size += len(found[-1]["text"].encode())
            if size >= _MEGABYTES * 1e6:
                break
    return found


def _vocabulary(texts: Any, genres: Any) -> Vocabulary:
    """A vocabulary as `yanmo tokenize` chooses it."""
    import pyarrow as pa

    from yanmo.tokenize.lexicon import dictionary_path, read_lexicon
    from yanmo.tokenize.vocabulary import Counts, choose, dictionary_segmenter

    lexicon = read_lexicon(dictionary_path())
    words, counts = dictionary_segmenter(lexicon), Counts()
    counts.add(pa.RecordBatch.from_arrays([texts, genres], ["text", "genre"]), words)
    how = {"min_character_count": 3, "character_share": 0.85, "dictionary_weight": 0.01}
    return choose(counts, lexicon, words, size=_PIECES, **how)


def _speed(texts: list[str], encode: Callable[[], object]) -> Callable[[], float]:
    size = sum(len(text.encode()) for text in texts) / 1e6
    return lambda: size * times_a_cpu_second(encode)


BENCHMARK = Benchmark(
    name="tokens",
    title=("Segmentation", "分词"),
    unit=("MB per CPU second", "每 CPU 秒 MB"),
    about=(
        "3 MB of the bundled text, one thread; the ids are those of Hugging Face's Unigram. jieba and rjieba "
        "give words, not ids.",
        "随项目提供的文字中的 3 MB，单线程；id 与 Hugging Face 的 Unigram 相同。jieba 和 rjieba 给出的是"
        "词，不是 id。",
    ),
    open=opened,
    in_chinese={
        f"yanmo, {_PIECES:,} pieces": f"yanmo，{_PIECES:,} 个词元",
        "jieba (words, HMM off)": "jieba（词，不用 HMM）",
        "rjieba (words, HMM off)": "rjieba（词，不用 HMM）",
        f"Hugging Face Unigram, the same {_PIECES:,}": f"Hugging Face Unigram，同样的 {_PIECES:,} 个",
    },
    minutes=1,
)
