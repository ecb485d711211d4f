"""How true a vocabulary is to jieba and how many tokens it makes, by size and by `--dictionary-weight`.

    python benchmarks/vocabulary.py
    python benchmarks/vocabulary.py --set poems=poems.jsonl.zst --set modern=modern.jsonl.zst \\
        --learn poems --sizes 8192,32768 --weights 0,0.01,1

Without `--set`: the bundled corpus, one set per genre. A set is a .jsonl or .jsonl.zst file whose lines have
a `text` (and, where a `genre` stands behind a colon, only lines of that one). One document in twenty is
held out; vocabularies are made from the others of the sets in `--learn` (all by default) and measured on
what is held out of every set:

    identical   sentences that the whole dictionary cuts exactly as jieba (HMM off) does
    ties        how many of those that differ have an equal score both ways
    recall      jieba's word boundaries that are token boundaries
    uncrossed   sentences in which no token crosses a word
    tok/char    tokens per character, white space included
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import zstandard

from yanmo.tokenize.jieba_agreement import agreement, full_agreement, sentences_of, thinned
from yanmo.tokenize.lexicon import Lexicon, dictionary_path, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.vocabulary import Counts, choose, dictionary_segmenter

CORPUS = Path(__file__).parents[1] / "corpus" / "small.jsonl.zst"
HELD_OUT = 20
MODERN = ("清华", "科学院", "经济", "计算机", "互联网", "有限公司", "化学", "研究所")
"""Words of the present that a corpus of the past does not hold."""


@dataclass
class Texts:
    """One set."""

    learned: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    """Of what is held out."""
    all_sentences: list[str] = field(default_factory=list)
    """Of all texts: the whole dictionary has learned nothing from them."""


def read_set(path: Path, genre: str, sentences: int) -> Texts:
    """A set of texts from a file."""
    found = Texts()
    for number, text in enumerate(_texts(path, genre)):
        (found.held_out if number % HELD_OUT == 0 else found.learned).append(text)
    found.sentences = thinned(sentences_of(found.held_out, 10**6, 10**6), sentences)
    found.all_sentences = thinned(sentences_of(found.learned + found.held_out, 10**6, 10**6), 5 * sentences)
    return found


def _texts(path: Path, genre: str) -> Iterator[str]:
    with zstandard.open(path, "rb") if path.suffix == ".zst" else path.open("rb") as file:
        for line in io.TextIOWrapper(file, encoding="utf-8"):
            value = json.loads(line)
            if genre in ("", value.get("genre")):
                yield value["text"]


def sets_of(arguments: list[str], sentences: int) -> dict[str, Texts]:
    """The sets that the command line names: NAME=FILE or NAME=FILE:GENRE."""
    found = {}
    for argument in arguments or [f"{genre}={CORPUS}:{genre}" for genre in "诗词文赋"]:
        name, _, place = argument.partition("=")
        path, _, genre = place.partition(":")
        found[name] = read_set(Path(path), genre, sentences)
    return found


def counted(texts: list[str], words: Segmenter) -> Counts:
    """Counts of texts."""
    counts = Counts()
    for begin in range(0, len(texts), 1024):
        column = pa.array(texts[begin : begin + 1024])
        genres = pa.array([""] * len(column))
        counts.add(pa.RecordBatch.from_arrays([column, genres], ["text", "genre"]), words)
    return counts


def tokens_per_character(segmenter: Segmenter, texts: list[str]) -> float:
    """Tokens of all texts, by their characters."""
    return len(segmenter.encode(pa.array(texts))[0]) / max(sum(map(len, texts)), 1)


def show_full(words: Segmenter, sets: dict[str, Texts]) -> None:
    """The whole dictionary beside jieba."""
    print(f"\nwhole dictionary: {words.vocab_size} pieces")
    print(f"{'set':<22}{'sentences':>10}{'identical':>11}{'ties':>6}")
    for name, texts in sets.items():
        found = full_agreement(words, texts.all_sentences)
        print(f"{name:<22}{found['sentences']:>10}{found['identical']:>11.6f}{found['ties']:>6}")


def show_pruned(
    counts: Counts, lexicon: Lexicon, words: Segmenter, sets: dict[str, Texts], options: argparse.Namespace
) -> None:
    """Vocabularies by size and weight."""
    head = "".join(f"{name[:18]:>27}" for name in sets)
    print(f"\n{'':<31}{head}\n{'size':>6}{'weight':>8}{'chars':>7}{'words':>7}   ", end="")
    print("".join(f"{'tok/char':>11}{'recall':>8}{'uncr.':>8}" for _ in sets) + "  modern words")
    for size in map(int, options.sizes.split(",")):
        for weight in map(float, options.weights.split(",")):
            chosen = choose(
                counts,
                lexicon,
                words,
                size=size,
                min_character_count=options.min_character_count,
                character_share=options.character_share,
                dictionary_weight=weight,
            )
            segmenter = Segmenter.of(chosen.pieces, chosen.scores, 3)
            print(f"{size:>6}{weight:>8g}{chosen.num_characters:>7}{chosen.num_words:>7}   ", end="")
            for texts in sets.values():
                found = agreement(segmenter, texts.sentences)
                fertility = tokens_per_character(segmenter, texts.held_out)
                print(
                    f"{fertility:>11.4f}{found['boundary_recall']:>8.4f}{found['sentences_uncrossed']:>8.3f}",
                    end="",
                )
            kept = sum(word in segmenter.ids for word in MODERN)
            print(f"  {kept}/{len(MODERN)}", flush=True)


def main() -> None:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--set", action="append", default=[], metavar="NAME=FILE[:GENRE]")
    command.add_argument("--learn", default="", help="sets that vocabularies are made from; all by default")
    command.add_argument("--sizes", default="8192,16384,32768,65536")
    command.add_argument("--weights", default="0.01")
    command.add_argument("--character-share", type=float, default=0.85)
    command.add_argument("--min-character-count", type=int, default=3)
    command.add_argument("--sentences", type=int, default=4000, help="held out, of each set")
    options = command.parse_args()
    start = time.process_time()
    sets = sets_of(options.set, options.sentences)
    lexicon = read_lexicon(dictionary_path())
    words = dictionary_segmenter(lexicon)
    learned = [name for name in sets if name in (options.learn or ",".join(sets)).split(",")]
    counts = counted([text for name in learned for text in sets[name].learned], words)
    print(f"learned from {', '.join(learned)}: {counts.characters.sum():,} characters")
    show_full(words, sets)
    show_pruned(counts, lexicon, words, sets, options)
    print(f"{time.process_time() - start:.0f} CPU-seconds")


if __name__ == "__main__":
    main()
