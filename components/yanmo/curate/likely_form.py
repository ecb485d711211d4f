"""Which text form the sources call for, where nobody named one: modern-1 for modern text, else classical-1.

classical-1 removes all white space and makes all punctuation full-width, so modern text with Latin, digits
or program code does not survive it; and who comes for the first time does not know of text forms. The two are
told apart by their words of grammar. Of the characters of novels of 1750 to 1907, 5 % to 8 % are one of
的了着们这那么吗呢吧, of this project's documents 1.9 %, of poems, lyrics, rhapsodies and literary prose
0.02 % to 0.2 %; one of 之其而於以者也矣乎焉 are 0.7 % to 1.3 % of the former two and 0.2 % to 12 % of the
latter (corpus/). Whichever are more decide; texts of both kinds together are what most of them are.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.curate.config import CurateOptions
from yanmo.curate.options.text_options import BUNDLES
from yanmo.curate.sources.batches import Reading, read_batches
from yanmo.curate.sources.entries import Fields
from yanmo.curate.sources.listing import Source, find_files
from yanmo.curate.sources.parsing import PLAIN, parse
from yanmo.curate.text.normalize import FORMS, is_han
from yanmo.curate.text.record_rules import check_record_rules, record_rules
from yanmo.formats.documents import text_form
from yanmo.stage.stage_run import StageRun

log = logging.getLogger(__name__)

MODERN, CLASSICAL = "modern-1", "classical-1"
MODERN_WORDS = frozenset("的了着们这那么吗呢吧們這麼嗎")
CLASSICAL_WORDS = frozenset("之其而於以者也矣乎焉")
_FILES, _BYTES = 64, 256 << 10
"""How many files are looked at, and how much of the beginning of each."""


def form_of(characters: Counter[str]) -> tuple[str, float, float]:
    """Return the form that texts call for, and how many words of modern and of classical Chinese they have.

    It is modern where its words outnumber the classical ones, or where Latin letters outnumber Han.

    Args:
        characters: of the texts -> how often.

    Returns:
        The form, and per cent of the Han characters.
    """
    modern, classical = (sum(map(characters.__getitem__, words)) for words in (MODERN_WORDS, CLASSICAL_WORDS))
    han = sum(count for character, count in characters.items() if is_han(ord(character)))
    letters = sum(count for c, count in characters.items() if c.isascii() and c.isalpha())
    form = MODERN if modern > classical or letters > han else CLASSICAL
    return form, 100 * modern / max(han, 1), 100 * classical / max(han, 1)


def with_likely_form(run: StageRun[CurateOptions, Any]) -> CurateOptions:
    """Return the options with a text form: the one given, the pinned set's, or that of these texts.

    The pinned set decides, so that a channel's form never changes with its text.
    """
    options: CurateOptions = run.options
    if "text_form" in run.given:
        return options
    check_record_rules(options)
    pinned = run.inputs["evaluation_set"]
    if pinned is not None:
        form = next((name for name in FORMS if text_form(pinned).startswith(name)), options.text_form)
        return _with_form(options, form, run.given)
    rules = record_rules(options)
    sources = _chosen(options)
    likely, modern, classical = form_of(_characters(sources, rules.fields, rules.reading))
    try:
        settled = _with_form(options, likely, run.given)
        record_rules(settled)
    except UsageError:  # --steps has one that this form has, or has not
        settled = options
    log.info(
        "text form %s: words of modern Chinese (的了这 ...) are %.2f %%, of classical Chinese (之其而 ...) "
        "%.2f %% of the Han characters at the beginning of %d file(s); --text-form %s would be the other one",
        settled.text_form,
        modern,
        classical,
        len(sources),
        CLASSICAL if settled.text_form == MODERN else MODERN,
    )
    return settled


def _with_form(options: CurateOptions, form: str, given: frozenset[str]) -> CurateOptions:
    bundle = {name: value for name, value in BUNDLES.get(form, {}).items() if name not in given}
    return dataclasses.replace(options, text_form=form, **bundle)  # type: ignore[arg-type]


def _chosen(options: CurateOptions) -> list[Source]:
    """At most _FILES of the sources, spread evenly over them by name; an empty one is refused later."""
    files = find_files(options.sources, follow_links=options.follow_links, quiet=True)
    found = [source for source in files if source.bytes]
    found.sort(key=lambda source: (source.name.rpartition("/")[2], source.bytes, source.uri))
    step = max(len(found) / _FILES, 1)
    return [found[int(i * step)] for i in range(min(len(found), _FILES))]


def _characters(sources: Sequence[Source], fields: Fields, how: Reading) -> Counter[str]:
    """Return the characters of the first documents, and how often they are there.

    Of chats only the answers count: questions are modern whatever is asked for.

    Raises:
        DataError: a file cannot be read.
    """
    fields = dataclasses.replace(fields, default_genre=fields.default_genre or PLAIN)
    characters = Counter[str]()
    for source in sources:
        columns = fields.of_source(source.settings).columns
        for batch in read_batches(source, columns, _BYTES, lambda _: None, how):
            documents, _ = parse(batch, fields)
            for document in documents:
                answers = [turn.text for turn in document.turns if turn.is_answer]
                for text in answers or [document.text]:
                    characters.update(text[:_BYTES])
            break
    return characters
