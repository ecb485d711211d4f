"""What curate changes in modern text, looked at: every change of every document, put into a class.

    python benchmarks/text_audit.py vue=FOLDER weekly=FOLDER reviews=FILE.csv ... --out audit

A source is read by curate's own readers with its default options, cleaned and normalized to the form
modern-1, and each document is compared with what was read, piece by piece (tags, references, words, single
characters). Where code begins and ends is found by rules of this file, not by curate's. A class is either one
that curate is meant for (`RIGHT`) or one that a reader would call wrong. This classifier does not judge
alone: `--out` holds up to 300 changes of each source, drawn by --seed, for somebody to read.

Prints a Markdown table; writes audit/audit.json and audit/SOURCE.jsonl (a change a line: class, before,
after, context, file).
"""

from __future__ import annotations

import argparse
import difflib
import html
import json
import random
import re
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yanmo.curate.config import CurateOptions
from yanmo.curate.sources.batches import read_batches
from yanmo.curate.sources.listing import find_files
from yanmo.curate.sources.parsing import RawDocument, parse
from yanmo.curate.text.cleaning import clean_and_normalize
from yanmo.curate.text.record_rules import record_rules
from yanmo.options.command_line import load

_PIECE = re.compile(
    r"<!--.{0,5000}?-->|<(?:su[bp]|code|kbd)>[^<>\n]{1,200}</(?:su[bp]|code|kbd)>|`[^`\n]{1,200}`|"
    r"</?[A-Za-z][^<>]{0,2000}>|&#?[A-Za-z0-9]{1,31};|[A-Za-z0-9_]+|[ \t\u3000]+|\r\n|.",
    re.DOTALL,
)
_FENCE = re.compile(r"[ \t>]*(?:[-*+] |\d+[.)] )?[ \t]*(`{3,}|~{3,})(.*)")
_TAGS = frozenset(
    re.findall(
        r"\w+",
        """
    a abbr address article aside audio b base bdi bdo big blockquote body br button canvas caption
    center cite code col colgroup dd del details dfn dialog dir div dl dt em embed fieldset
    figcaption figure font footer form frame h1 h2 h3 h4 h5 h6 head header hr html i iframe img
    input ins kbd label legend li link main map mark meta meter nav noscript object ol optgroup
    option output p param picture pre progress q rp rt ruby s samp section select small source span
    strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time
    title tr track tt u ul var video wbr
        """,
    )
)
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_BLANKS = " \t\u3000\xa0\r\f\v"
RIGHT = {
    "line ends": "blanks at the end of a line, CRLF, a byte order mark",
    "empty lines": "a third empty line and more; those at the beginning and end",
    "tags": "a tag that HTML knows, a comment or a script, outside of code",
    "references": "a character reference (&amp;) read once, outside of code",
    "invisible": "a control or zero-width character",
    "composed": "canonical composition, radicals, compatibility ideographs, no-break spaces",
    "simplified": "traditional to simplified, by OpenCC",
    "private use": "a private-use character, which no font shows, to 〓",
    "masks": "a mail address, telephone or identity number, outside of code and addresses",
}
WRONG = {
    "code": "any change in code but for the ends of lines",
    "white space": "any other change of white space",
    "letters": "letters, digits or Han characters lost or put in",
    "unknown tags": "what looks like a tag, but HTML has none of its name",
    "other": "all else",
}


@dataclass(frozen=True)
class Change:
    """A change of a document."""

    kind: str
    before: str
    after: str
    context: str
    """The text around it, as it was read."""
    file: str


def changes(raw: str, made: str, file: str) -> Iterator[Change]:
    """Every place where the two texts differ; lines by the blanks at their ends first."""
    lines = [line.rstrip(_BLANKS) for line in raw.removeprefix("\ufeff").split("\n")]
    for old, new in zip(raw.removeprefix("\ufeff").split("\n"), lines, strict=True):
        if old != new:
            yield Change("line ends", old[len(new) :], "", new[-60:], file)
    raw = "\n".join(lines)
    code = code_spans(raw)
    for start, before, after in differences(raw, made):
        kind = _kind(raw, start, before, after, code)
        context = raw[max(0, start - 60) : start + len(before) + 60]
        yield Change(kind, before, after, context, file)


def differences(raw: str, made: str) -> Iterator[tuple[int, str, str]]:
    """(place in `raw`, what stood there, what stands there now), by lines first and by pieces then.

    Differences with nothing but white space between them are one.
    """
    old, new = raw.splitlines(keepends=True), made.splitlines(keepends=True)
    start, before, after = 0, "", ""
    for place, gone, come, is_equal in _by(old, new, 0, _by_pieces):
        if not is_equal:
            before, after = before + gone, after + come
        elif gone.strip() or not (before or after):
            if before or after:
                yield start, before, after
            start, before, after = place + len(gone), "", ""
        else:
            before, after = before + gone, after + gone
    if before != after:
        yield start, before, after


_Steps = Iterator[tuple[int, str, str, bool]]


def _by_pieces(at: int, before: str, after: str) -> _Steps:
    return _by(_PIECE.findall(before), _PIECE.findall(after), at, None)


def _by(old: list[str], new: list[str], at: int, deeper: Callable[[int, str, str], _Steps] | None) -> _Steps:
    for kind, a, b, c, d in difflib.SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes():
        before, after = "".join(old[a:b]), "".join(new[c:d])
        if deeper and kind != "equal":
            yield from deeper(at, before, after)
        else:
            yield at, before, after, kind == "equal"
        at += len(before)


def code_spans(text: str) -> list[tuple[int, int]]:
    """Fenced blocks and inline code: (first character, end), in order. A reader's view, in twenty lines."""
    spans, at, fence, began = [], 0, "", 0
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                spans.append((began, at + len(line)))
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence, began = found[1], at
        else:
            inline = re.finditer(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", line)
            spans += [(at + m.start(), at + m.end()) for m in inline]
        at += len(line)
    return [*spans, (began, len(text))] if fence else spans


def _kind(raw: str, start: int, before: str, after: str, code: list[tuple[int, int]]) -> str:
    if not (before + after).strip():
        return _white_space(raw, start, before, after)
    first = start + len(before) - len(before.lstrip())
    at = bisect_right(code, (first, len(raw) + 1)) - 1
    in_code = (at >= 0 and first < code[at][1]) or (
        at + 1 < len(code) and code[at + 1][0] < start + len(before.rstrip())
    )
    if all(_is_invisible(c) for c in before) and not after.strip():
        return "invisible" if not in_code or set(before) <= set("\ufeff\u200b") else "code"
    reads, has_tags, is_known = _read(before)
    is_shown = _squashed(reads) == _squashed(after)
    if in_code and not (is_shown and before.lstrip().startswith("<")):
        return "code"
    if any(mark in after for mark in ("邮箱", "电话", "身份证号")):
        return "masks"
    if is_shown:
        if has_tags:
            return "tags" if is_known else "unknown tags"
        if "&" in before:
            return "references"
    differ = [old for old, new in zip(before, after, strict=False) if old != new]
    if len(before) == len(after) and all("\u2e80" <= c <= "\u2fdf" for c in differ):
        return "composed"
    if unicodedata.normalize("NFKC", before) == unicodedata.normalize("NFKC", after):
        return "composed"
    if "〓" in after and after == _simplified(_PRIVATE.sub("〓", before)):
        return "private use"
    before = "".join(c for c in before if not _is_invisible(c) or c == "\n")
    if re.sub(r"[ \t]+(?=\n|\Z)", "", before) == after:
        return "invisible"
    around = raw[start - min(start, 20) : start], raw[start + len(before) :][:20]
    whole = _simplified(unicodedata.normalize("NFKC", before.join(around)))
    if whole[min(start, 20) : len(whole) - len(around[1])] == unicodedata.normalize("NFKC", after):
        return "simplified"
    lost = Counter(c for c in before if c.isalnum()) != Counter(c for c in after if c.isalnum())
    return "letters" if lost else "other"


def _white_space(raw: str, start: int, before: str, after: str) -> str:
    end = start + len(before)
    if before.replace("\xa0", " ") == after.replace("\xa0", " "):
        return "composed"
    if "\n" in before and (end == len(raw) or not raw[:start].strip()) and not after.strip("\n"):
        return "empty lines"
    around = _breaks(raw, start, end)
    if around > 3 and around - before.count("\n") + after.count("\n") == 3:
        return "empty lines"
    return "white space"


def _read(before: str) -> tuple[str, bool, bool]:
    """How a browser shows it, whether it held tags or comments, and whether HTML knows all of them."""
    text = re.sub(r"<!--.*?-->", "", before, flags=re.DOTALL)
    text = re.sub(r"<(script|style)\b[^>]*>.*?</\1>", "", text, flags=re.DOTALL | re.IGNORECASE)
    text = re.sub(r"<sup>([+-]?[0-9]+)</sup>", lambda found: found[1].translate(_RAISED), text)
    text = re.sub(r'<img\b[^>]*?latex\?([^"]+)"[^>]*>', r"$\1$", text)
    names = re.findall(r"</?([A-Za-z][A-Za-z0-9:-]*)(?:\s[^<>]*)?/?>", text)
    text = re.sub(r"</?[A-Za-z][^<>]*>", "", text)
    known = all(name.lower() in _TAGS for name in names)
    return _simplified(html.unescape(text)), bool(names) or "<" in before, known


_RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_PLAIN = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ⁿⁱ", "0123456789+-ni")


def _squashed(text: str) -> str:
    """Without white space and marks of Markdown: of raised text (`^(n - 1)`), code, rows and quotations."""
    return re.sub(r"[\s\xa0\u200b^_()`\\>]", "", text.translate(_PLAIN))


def _breaks(raw: str, start: int, end: int) -> int:
    """Line breaks in the white space that surrounds a place."""
    while start and raw[start - 1].isspace():
        start -= 1
    while end < len(raw) and raw[end].isspace():
        end += 1
    return raw[start:end].count("\n")


def _is_invisible(c: str) -> bool:
    return unicodedata.category(c) in ("Cf", "Cc", "Co", "Cn") and c not in "\n\t"


@cache
def _converter() -> Any:
    from opencc import OpenCC

    return OpenCC("t2s")


def _simplified(text: str) -> str:
    return str(_converter().convert(text))


def raw_documents(options: CurateOptions) -> Iterator[list[RawDocument]]:
    """What curate's readers give, a batch at a time."""
    rules = record_rules(options)
    for source in find_files(options.sources):
        columns = rules.fields.of_source(source.settings).columns
        for batch in read_batches(source, columns, options.batch_bytes, lambda _: None, rules.reading):
            documents, _ = parse(batch, rules.fields)
            yield documents


def audit(sources: str) -> tuple[Counter[str], list[Change]]:
    """Sums (documents, changed documents, characters read), and all changes of a source."""
    options = load(
        CurateOptions, [f"--sources={sources}", "--text-form=modern-1", "--default-genre=文"], "audit"
    )
    rules, sums, found = record_rules(options), Counter[str](), []
    for documents in raw_documents(options):
        read = [[turn.text for turn in d.turns] or [d.text] for d in documents]
        names = [d.source or d.title for d in documents]
        _, normalized = clean_and_normalize(documents, rules.cleaning, rules.steps)
        made = [[turn.text for turn in d.turns] for d in documents]
        for texts, turns, text, name in zip(read, made, normalized.texts, names, strict=True):
            sums["documents"] += 1
            sums["characters"] += sum(map(len, texts))
            pairs = zip(texts, turns or [text], strict=True)
            here = [change for old, new in pairs if old != new for change in changes(old, new, name)]
            sums["changed"] += bool(here)
            found += here
    return sums, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--drawn", type=int, default=300, help="changes of each source to be read by somebody"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    report = {}
    for name, _, path in (source.partition("=") for source in asked.sources):
        sums, found = audit(path)
        if not sums["documents"]:
            raise SystemExit(f"{name}: no document was read from {path}; name its fields in a sources .yaml")
        by_kind = defaultdict(list)
        for change in found:
            by_kind[change.kind].append(change)
        drawn = random.Random(asked.seed).sample(found, min(asked.drawn, len(found)))
        with (asked.out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(change), ensure_ascii=False) + "\n" for change in drawn)
        report[name] = {
            **sums,
            "changes": {kind: len(some) for kind, some in sorted(by_kind.items())},
            "wrong_per_100k": 1e5 * sum(len(by_kind[kind]) for kind in WRONG) / max(1, sums["characters"]),
            "wrong": [asdict(change) for kind in WRONG for change in by_kind[kind][:20]],
        }
    (asked.out / "audit.json").write_text(json.dumps(report, ensure_ascii=False, indent=1), encoding="utf-8")
    print(table(report))


def table(report: dict[str, Any]) -> str:
    """The classes by source."""
    kinds = [*RIGHT, *WRONG]
    lines = [f"| | documents | characters | {' | '.join(kinds)} | wrong in 100,000 |"]
    lines.append("|---" * (len(kinds) + 4) + "|")
    for name, one in report.items():
        counts = " | ".join(f"{one['changes'].get(kind, 0):,}" for kind in kinds)
        wrong = f"{one['wrong_per_100k']:.2f}"
        lines.append(f"| {name} | {one['documents']:,} | {one['characters']:,} | {counts} | {wrong} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
