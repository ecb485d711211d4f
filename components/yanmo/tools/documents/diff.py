"""`yanmo documents diff`: a document as it came beside the clean one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from yanmo.common.errors import DataError, UsageError
from yanmo.curate.config import CurateOptions
from yanmo.curate.map_report import MapReport
from yanmo.curate.mapping import batches_of
from yanmo.curate.sources.listing import Source, file_digest, find_files
from yanmo.curate.sources.parsing import RawDocument, parse
from yanmo.curate.text.cleaning import clean_and_normalize
from yanmo.curate.text.record_rules import RecordRules, record_rules
from yanmo.options.command_line import load
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.documents.command import DiffOptions
from yanmo.tools.store.find import find

_AROUND = 30
"""Characters that are shown of what is equal, on both sides of a difference."""
_MANY = 20_000
"""Characters from which on frequent ones begin no match: each place is compared with each otherwise."""


def run(store: ObjectStore, options: DiffOptions) -> int:
    output = find(store, options.what, "curate", channel=options.channel)
    arguments = ["--config", str(output.path("config.yaml")), "--sources", options.sources]
    curate = load(CurateOptions, arguments, "yanmo curate")
    path, colon, line = options.document.rpartition(":")
    if not colon or not line.isdecimal():
        raise UsageError(f"{options.document!r}: expected PATH:LINE, as `yanmo documents show` lists it")
    rules = record_rules(curate)
    document = _raw(_source(output, curate, path), rules, curate.batch_bytes, int(line))
    raw = "\n".join(turn.text for turn in document.turns) if document.turns else document.text
    cleaned, normalized = clean_and_normalize([document], rules.cleaning, rules.steps)
    changes = [*cleaned[0].changes, *(step for step, changed in normalized.changed.items() if changed[0])]
    print(f"{options.document}  changed by {', '.join(changes) or _unnamed(raw, normalized.texts[0])}\n")
    print(marked(raw, normalized.texts[0]))
    return 0


def _unnamed(before: str, after: str) -> str:
    """Return what changed a text where no step is named: every text form takes white space off its ends."""
    is_white = "".join(before.split()) == "".join(after.split())
    changed = "nothing but white space" if is_white else "no step that is counted"
    return "nothing" if before == after else changed


def _source(output: Output, curate: CurateOptions, path: str) -> Source:
    """The file of that path, as the output was made from it."""
    found = [one for one in find_files(curate.sources, follow_links=True, quiet=True) if one.name == path]
    if not found:
        raise DataError(f"--sources {curate.sources}: has no {path}; give the sources of {output}")
    known = output.manifest.inputs["sources"]["files"]
    known = {one["sha256"] for one in known if one["name"] == path}
    for one in found:
        if (sha256 := file_digest(one.uri)) in known:
            return replace(one, sha256=sha256)
    raise DataError(
        f"{found[0].shown}: has changed since {output} was made from it; run curate again, or restore it"
    )


def _raw(source: Source, rules: RecordRules, batch_bytes: int, line: int) -> RawDocument:
    for batch, own in batches_of(source, rules, batch_bytes, lambda _: None, MapReport()):
        for document in parse(batch, own.fields)[0]:
            if document.line == line:
                return document
    raise DataError(
        f"{source.shown}: no document begins at line {line}: give PATH:LINE as `yanmo documents show` does"
    )


def marked(before: str, after: str) -> str:
    """Both texts in one: [-removed-], {+added+}, and what is equal, shortened."""
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(
        _short(a) if a == b else "".join(_short(c) if c == d else _changed(c, d) for c, d in _parts(a, b))
        for a, b in (("".join(c), "".join(d)) for c, d in _parts(*lines))
    )


def _parts(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Return what is equal and what differs, in turn."""
    for _, begin, end, start, stop in SequenceMatcher(None, a, b, len(a) > _MANY).get_opcodes():
        yield a[begin:end], b[start:stop]


def _changed(before: Sequence[str], after: Sequence[str]) -> str:
    removed, added = (repr("".join(text))[1:-1] for text in (before, after))
    return (f"[-{removed}-]" if removed else "") + (f"{{+{added}+}}" if added else "")


def _short(text: Sequence[str]) -> str:
    text = "".join(text)
    return text if len(text) <= 3 * _AROUND else f"{text[:_AROUND]} ... {text[-_AROUND:]}"
