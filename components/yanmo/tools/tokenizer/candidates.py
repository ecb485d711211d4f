"""The tokenizers that are compared, each made from the same text.

    char        every frequent character, no words
    jieba       what `yanmo tokenize` makes: Unigram over jieba's words and frequencies
    bpe         byte-level BPE with Qwen's pre-tokenizer
    unigram     SentencePiece's Unigram, trained by `tokenizers` (the same EM; no dependency more)
    FOLDER      any tokenizer.json

All are Segmenters, so that what is measured of one is measured of all in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from yanmo.common.errors import UsageError
from yanmo.formats.round_trip import check_round_trip, probe_texts
from yanmo.tokenize.byte_level import BYTE_SCORE, BYTES
from yanmo.tokenize.config import TokenizeConfig
from yanmo.tokenize.foreign import ForeignSegmenter, read_segmenter
from yanmo.tokenize.lexicon import Lexicon, dictionary_path, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import (
    ALWAYS,
    RESERVED,
    SPECIAL_SCORE,
    Counts,
    Vocabulary,
    choose,
    dictionary_segmenter,
)

KINDS = ("char", "jieba", "bpe", "unigram")
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""The pattern of Qwen2's and Qwen3's tokenizer.json."""
_SCRIPTS = r"\p{Han}+|\p{Latin}+|\p{N}|[^\p{Han}\p{Latin}\p{N}]"
"""No piece spans two scripts or two digits (SentencePiece's split_by_unicode_script, split_digits)."""
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
        """The candidate of a kind (one of KINDS) with so many ids, or fewer where the text has no more."""
        if kind == "jieba":
            return self._of(self._jieba(size), f"{kind}-{size}")
        if kind == "char":
            return self._of(without_words(self._jieba(size)), f"{kind}-{size}")
        if kind == "unigram":
            characters = {piece for piece in self._jieba(size).pieces if len(piece) == 1}
            return self._of(_unigram(self.texts, size, characters), f"{kind}-{size}")
        path = self.folder / f"{kind}-{size}.json"
        _bpe(self.texts, size).save(str(path))
        return ForeignSegmenter.read(path)

    def _jieba(self, size: int) -> Vocabulary:
        return choose(
            self.counts,
            self.lexicon,
            self.words,
            size=size,
            min_character_count=_DEFAULT.min_character_count,
            character_share=_DEFAULT.character_share,
            dictionary_weight=_DEFAULT.dictionary_weight,
        )

    def _of(self, vocabulary: Vocabulary, name: str) -> Segmenter:
        path = self.folder / f"{name}.json"
        path.write_text(tokenizer_json(vocabulary), encoding="utf-8")
        return Segmenter.read(path)


def parse_candidates(text: str, sizes: Sequence[int]) -> list[tuple[str, int]]:
    """(kind, size) or (folder, 0) of each candidate that `--candidates` names.

    Raises:
        UsageError: a name is neither a kind nor a folder.
    """
    found: list[tuple[str, int]] = []
    for name in filter(None, map(str.strip, text.split(","))):
        if name in KINDS:
            found += [(name, size) for size in (sizes[:1] if name == "char" else sizes)]
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


def without_words(vocabulary: Vocabulary) -> Vocabulary:
    """Its reserved ids, bytes and single characters."""
    fixed = len(RESERVED) + len(BYTES)
    kept = [i for i, piece in enumerate(vocabulary.pieces) if i < fixed or len(piece) == 1]
    return Vocabulary(
        [vocabulary.pieces[i] for i in kept],
        [vocabulary.scores[i] for i in kept],
        vocabulary.min_character_count,
        vocabulary.num_characters,
        0,
    )


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


def _unigram(texts: Sequence[str], size: int, characters: set[str]) -> Vocabulary:
    """Learned from the runs of `characters` (what SentencePiece calls character coverage)."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Split(Regex(_SCRIPTS), "isolated")
    fixed = dict.fromkeys(RESERVED, SPECIAL_SCORE) | dict.fromkeys(BYTES, BYTE_SCORE)
    room = size - len(fixed)
    trainer = trainers.UnigramTrainer(vocab_size=room, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(_runs(texts, characters), trainer)
    learned = dict(json.loads(made.to_str())["model"]["vocab"])
    learned.pop("<unk>", None)
    least = min(learned.values())
    always = {character: learned.get(character, least) for character in sorted(ALWAYS)}
    chosen = always | {p: s for p, s in learned.items() if p not in fixed}
    ordered = sorted(chosen, key=lambda piece: (-chosen[piece], piece))[:room]
    pieces = [*fixed, *ordered]
    return Vocabulary(pieces, [*fixed.values(), *map(chosen.__getitem__, ordered)], 1, 0, len(ordered))


def _runs(texts: Sequence[str], characters: set[str]) -> Iterator[str]:
    other = re.compile("[^" + re.escape("".join(sorted(characters - {"\n"}))) + "]+")
    return (run for text in texts for run in other.split(text) if run)
