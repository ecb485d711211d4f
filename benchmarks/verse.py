"""Verse that is held to a form, beside verse that is not: what passes our rules, what it costs.

    .venv/bin/python benchmarks/verse.py --store runs/demo --number 1000

Writes with the champion of the channel: free samples of a genre, and of each form half as many that are held
to it. A poem passes where it has the form and breaks none of evaluate's rules (a character that 平水韵 does
not have breaks none); a 词 where lines, tones and rhymes are those of its tune. The free samples that pass
are drawn as the model writes poems of the form: their bits are those of a perfect method.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch

from yanmo.model.generation.choosing import Choice
from yanmo.model.generation.draws import own_draws
from yanmo.model.generation.lines import write_lines
from yanmo.model.generation.writing import Text, write
from yanmo.model.hf_export import load
from yanmo.model.scoring import token_bits
from yanmo.store.opening import open_store
from yanmo.tools.generate.named_model import NamedModel, is_folder, open_model
from yanmo.verse.rules import passes
from yanmo.verse.verse_form import VerseForm

CHOICE = Choice(temperature=0.8, top_p=0.95)
ROWS, MOST = 64, 160
FORMS = ("五绝", "七绝", "五律", "七律", "临江仙")


class Poem(NamedTuple):
    """One sample."""

    text: str
    bits: float
    """Of all its characters, under the model at temperature 1, without its end."""


def main() -> None:
    """Print a row of Markdown for each form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default="runs/demo")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--model", default="", help="default: the champion of the channel")
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--forms", nargs="*", default=FORMS)
    parser.add_argument("--tries", nargs="*", type=int, default=[1, 4])
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = None if is_folder(options.model) else open_store(options.store)
    model = open_model(store, options.model, options.channel, "cpu", "fp32")
    free: dict[str, tuple[list[Poem], float]] = {}
    print("| form | how | pass | bits per character | ms per poem |\n|---|---|---|---|---|")
    for name in options.forms:
        form = VerseForm(model.tokenizer, name, ends=sorted(model.ends))
        genre = form.form.genre
        if genre not in free:
            free[genre] = _written(model, genre, 2 * options.number, None, 1)
        poems, each = free[genre]
        passing = [poem for poem in poems if passes(poem.text, form.form)]
        _row(name, f"free, {len(poems):,}", poems, passing, each)
        _row(name, "free, until one passes", passing, passing, each * len(poems) / max(len(passing), 1))
        for tries in options.tries:
            poems, each = _written(model, genre, options.number, form, tries)
            passing = [poem for poem in poems if passes(poem.text, form.form)]
            _row(name, f"`--tries {tries}`", poems, passing, each)


def _written(
    model: NamedModel, genre: str, number: int, form: VerseForm | None, tries: int
) -> tuple[list[Poem], float]:
    """Poems, and milliseconds of CPU for each."""
    ids = model.ids_of("", genre)
    texts = [Text(ids, own_draws(1, i), model.ends, MOST, form=form) for i in range(number)]
    began = time.process_time()
    if form and tries > 1:
        writing = write_lines(model.writer, texts, CHOICE, tries=tries, at_once=ROWS)
    else:
        writing = write(model.writer, texts, CHOICE, at_once=ROWS, slides=True, shares=True)
    for _ in writing:
        pass
    taken = (time.process_time() - began) / number * 1000
    return _scored(model, texts), taken


def _scored(model: NamedModel, texts: Sequence[Text]) -> list[Poem]:
    """The poems with their bits; tokens beyond the model's context have half of it before them at least."""
    decoder = load(model.folder).model.eval()
    bits = token_bits(decoder, [np.array([*text.prompt, *text.new], dtype=np.uint16) for text in texts])
    read = [model.tokenizer.decode(text.new) for text in texts]
    return [Poem(r, float(b[len(t.prompt) - 1 :].sum())) for r, b, t in zip(read, bits, texts, strict=True)]


def _row(name: str, how: str, poems: Sequence[Poem], passing: Sequence[Poem], each: float) -> None:
    """Bits are the mean of those of each character, over poems."""
    bits = [poem.bits / len(poem.text) for poem in poems if poem.text]
    mean, error = (
        fmean(bits) if bits else math.nan,
        stdev(bits) / len(bits) ** 0.5 if len(bits) > 1 else math.nan,
    )
    share = 100 * len(passing) / max(len(poems), 1)
    print(f"| {name} | {how} | {share:.2f} % | {mean:.3f} ± {1.96 * error:.3f} | {each:.0f} |", flush=True)


if __name__ == "__main__":
    main()
