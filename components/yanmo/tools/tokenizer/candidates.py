"""The tokenizers that are compared, each made from the same text.

    jieba       what `yanmo tokenize` makes: Unigram over jieba's words and frequencies
    bpe         byte-level BPE with Qwen's pre-tokenizer
    FOLDER      any tokenizer.json

All are Segmenters, so that what is measured of one is measured of all in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from yanmo.common.errors import UsageError
from yanmo.formats.round_trip import check_round_trip, probe_texts
from yanmo.tokenize.config import TokenizeConfig
from yanmo.tokenize.foreign import ForeignSegmenter, read_segmenter
from yanmo.tokenize.lexicon import Lexicon, dictionary_path, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import Counts, Vocabulary, choose, dictionary_segmenter

KINDS = ("jieba", "bpe")
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's and Qwen3's tokenizer.json."""
_DEFAULT = TokenizeConfig()
_BATCH = 1000


@dataclass
class Workshop:
    """Makes candidates from one text; what several need is made once."""

    texts: Sequence[str]
    folder: Path
    """Where their tokenizer.json files are written."""
    lexicon: Lexicon = field(default_factory=lambda: read_lexicon(dictionary_path()))

    def __post_init__(self) -> None:
        self.words = dictionary_segmenter(self.lexicon)
        self._counts: Counts | None = None

    @property
    def counts(self) -> Counts:
        """Counts of the text, by characters and jieba's words."""
        if self._counts is None:
            self._counts = Counts()
            for begin in range(0, len(self.texts), _BATCH):
                column = pa.array(self.texts[begin : begin + _BATCH], pa.string())
                genres = pa.array([""] * len(column))
                self._counts.add(pa.RecordBatch.from_arrays([column, genres], ["text", "genre"]), self.words)
        return self._counts

    def make(self, kind: str, size: int) -> Segmenter:
        """Return the candidate of a kind (one of KINDS) with so many ids, or fewer: the text has no more."""
        path = self.folder / f"{kind}-{size}.json"
        if kind == "jieba":
            path.write_text(tokenizer_json(self._jieba(size)), encoding="utf-8")
            return Segmenter.read(path)
        _bpe(self.texts, size).save(str(path))
        return ForeignSegmenter.read(path)

    def _jieba(self, size: int) -> Vocabulary:
        return choose(
            self.counts,
            self.lexicon,
            self.words,
            size=size,
            min_character_count=_DEFAULT.min_character_count,
            dictionary_weight=_DEFAULT.dictionary_weight,
        )


def parse_candidates(text: str, sizes: Sequence[int]) -> list[tuple[str, int]]:
    """(kind, size) or (folder, 0) of each candidate that `--candidates` names.

    Raises:
        UsageError: a name is neither a kind nor a folder.
    """
    found: list[tuple[str, int]] = []
    for name in filter(None, map(str.strip, text.split(","))):
        if name in KINDS:
            found += [(name, size) for size in sizes]
        elif Path(name).exists():
            found.append((name, 0))
        else:
            raise UsageError(
                f"--candidates {name}: expected {', '.join(KINDS)} or a folder with tokenizer.json"
            )
    if len(found) < 2:
        raise UsageError("--candidates: expected two or more, or --sizes with two or more")
    return found


def read_candidate(place: str) -> Segmenter:
    """The tokenizer of a folder or a tokenizer.json.

    Raises:
        DataError: it is damaged, or loses text.
    """
    path = Path(place)
    path = path / "tokenizer.json" if path.is_dir() else path
    found = read_segmenter(path)
    check_round_trip(found.reference, probe_texts(), f"{path}")
    return found


def _bpe(texts: Sequence[str], size: int) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    steps = [
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(iter(texts), trainer, length=len(texts))
    return made
