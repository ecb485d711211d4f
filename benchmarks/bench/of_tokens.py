"""Segmentation: megabytes of Chinese text per CPU second of one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.declared import Benchmark, Group, Place
from bench.rounds import times_a_cpu_second

_MEGABYTES = 3.0
_PIECES = 8192
_SLOW, _SLOWER = 4, 16
"""One document in this many is enough of a contestant that is slow."""


@contextmanager
def opened(place: Place) -> Iterator[list[Group]]:
    """The bundled text, and a vocabulary of the demo's size that was chosen on it."""
    del place
    import pyarrow as pa
    import rjieba
    import tokens  # first of all: it keeps tokenizers to one thread
    from tokens_sentencepiece import trained

    from yanmo.tokenize.lexicon import jieba_tokenizer
    from yanmo.tokenize.segmenter import Segmenter

    docs = tokens.documents(_MEGABYTES)
    texts = [d["text"] for d in docs]
    column = pa.array(texts)
    vocabulary = tokens.vocabularies(column, pa.array([d["genre"] for d in docs]), [_PIECES])[1][0]
    segmenter = Segmenter.of(vocabulary.pieces, vocabulary.scores, 3)
    few, fewer, jieba = texts[::_SLOW], texts[::_SLOWER], jieba_tokenizer()
    pieces = trained(few, _PIECES)
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
                f"SentencePiece Unigram, {pieces.get_piece_size():,}": _speed(
                    few, lambda: pieces.encode(few, num_threads=1)
                ),
            },
        )
    ]


def _speed(texts: list[str], encode: Callable[[], object]) -> Callable[[], float]:
    size = sum(len(text.encode()) for text in texts) / 1e6
    return lambda: size * times_a_cpu_second(encode)


BENCHMARK = Benchmark(
    name="tokens",
    title=("Segmentation", "分词"),
    unit=("MB per CPU second", "每 CPU 秒 MB"),
    about=(
        "Three megabytes of the bundled text, one thread. Ours gives the same ids as Hugging Face's Unigram. "
        "jieba gets one document in 16, Hugging Face and SentencePiece one in 4; SentencePiece trains its "
        "pieces on the text itself. jieba and rjieba give words, not ids.",
        "随项目提供的文字中的三 MB，单线程。我们给出的 id 与 Hugging Face 的 Unigram 相同。jieba 只处"
        "理 16 篇中的一篇，Hugging Face 和 SentencePiece 处理 4 篇中的一篇；SentencePiece 的词元在同样"
        "的文字上训练。jieba 和 rjieba 给出的是词，不是 id。",
    ),
    open=opened,
    in_chinese={
        f"yanmo, {_PIECES:,} pieces": f"yanmo，{_PIECES:,} 个词元",
        "jieba (words, HMM off)": "jieba（词，不用 HMM）",
        "rjieba (words, HMM off)": "rjieba（词，不用 HMM）",
        f"Hugging Face Unigram, the same {_PIECES:,}": f"Hugging Face Unigram，同样的 {_PIECES:,} 个",
        f"SentencePiece Unigram, {_PIECES:,}": f"SentencePiece Unigram，{_PIECES:,} 个",
    },
    packages=("sentencepiece==0.2.1",),
    minutes=1,
)
