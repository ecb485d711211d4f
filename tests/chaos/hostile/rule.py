"""The one rule: how a command may end, whatever it is given.

A documented exit code, one sentence that says what to do, within 10 s, below 1 GB, and a store that is as it
was. Nothing here is the product's own code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from chaos.hostile.engine import Ended
from yanmo.common.logs import read_line

USAGE, DATA, BUG, RETRY, ENVIRONMENT = 64, 65, 70, 75, 78
DOCUMENTED = (0, USAGE, DATA, RETRY, ENVIRONMENT)
"""Of the exit codes; 70 says that it is a bug, so it is one."""
TERMINATED = 143
SECONDS = 10.0
WORKING_SECONDS = 2.0
"""CPU time of one that is still at work after a while; below it, it waits."""
BYTES = 1_000_000_000
LONGEST_MESSAGE = 900
"""Characters; three lines of a paragraph on a wide terminal, with a path or two."""

_STAMP = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)
_ENDED = re.compile(r"^(\S+)\s+\1 (failed with exit code \d+ \(\w+\)$|error \d+: )")
"""The last line of a stage, which repeats in brief how it ended."""
_AGAIN = re.compile(r"same command again|run (it )?again|try again|try later")
_FINDING = re.compile(r"[A-Z]{2}|\? |not asked: |\{")
_INNER = re.compile(
    r"[Ee]rrno|Traceback|\b[A-Z]\w+(?:Error|Exception)\b|<class|object at 0x|NoneType|\bmmap\b|std::|\.py:\d"
)
TO_DO = re.compile(
    r"\b(expected|expects|needs?|give|given|use|run|see|looks?|remove|make|free|name|choose|change|set|repair|mend|"
    r"fill|put|copy|take|write|wait|mount|raise|import|leave|delete|must|shows?|end|tell|add|say|stop|"
    r"fetch|gets?|restore|upgrade|decompress|convert|split|save|measure|lower|finish|"
    r"bring|keep|create|correct|nothing to do|tokenize|goes on|says why|did you mean)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Expected:
    """What a case allows beside the rule."""

    codes: tuple[int, ...] = DOCUMENTED
    names: tuple[str, ...] = ()
    """One of these stands in the message: the option, the file, the output that is at fault."""
    may_commit: tuple[str, ...] = ()
    """Stages and parts whose outputs may be added by a command that fails: phases before the failure."""
    says_on_stdout: bool = False
    """Whether what it found stands on stdout, where stderr says nothing."""


def judge(ended: Ended, expected: Expected, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What is against the rule, in words; empty where nothing is."""
    found = list(_of_the_end(ended, expected))
    if ended.killed or (ended.stopped and ended.code in (0, RETRY, TERMINATED)):
        return found
    if ended.code:
        found += _of_the_message(ended, expected)
        found += _of_the_store(before, after, expected.may_commit)
    return found


def _of_the_end(ended: Ended, expected: Expected) -> list[str]:
    found = []
    if ended.killed:
        found.append(ended.killed)
    elif ended.stopped:
        if ended.code not in (0, RETRY, TERMINATED):
            found.append(f"stopped by SIGTERM, it ended with {ended.code}")
        elif ended.cpu < WORKING_SECONDS:
            found.append(f"it waited, with {ended.cpu:.1f} s of CPU in all")
    elif ended.code == BUG or ended.code not in (*DOCUMENTED, *expected.codes):
        found.append(f"exit code {ended.code} is not one that is documented")
    elif ended.code not in expected.codes:
        found.append(f"exit code {ended.code}, expected {' or '.join(map(str, expected.codes))}")
    if ended.code and not ended.stopped and not ended.killed and min(ended.seconds, ended.cpu) > SECONDS:
        found.append(f"it took {ended.seconds:.0f} s ({ended.cpu:.0f} s of CPU)")
    if ended.bytes > BYTES and not ended.killed:
        found.append(f"it took {ended.bytes >> 20} MiB of memory")
    if ended.left:
        found.append(f"left behind: {ended.left[0][:200]}")
    return found


def message_of(ended: Ended) -> str:
    """The last thing that is said before the line with the exit code, which repeats it in brief."""
    text = "\n".join(map(_as_plain, ended.stderr.split("\n")))
    starts = [m.start() for m in _STAMP.finditer(text)]
    parts = [text[a:b].strip()[9:] for a, b in zip(starts, [*starts[1:], None], strict=False)]
    parts = [part for part in parts if not _ENDED.match(part)]
    return parts[-1].partition(" ")[2].strip() if parts else text.strip()


def _as_plain(line: str) -> str:
    """A line of `--log-format json` as people get it; any other as it is."""
    found = read_line(line)
    return f"{found.time[11:19]} {found.stage:<8} {found.message}" if found and found.level else line


def _of_the_message(ended: Ended, expected: Expected) -> list[str]:
    texts = [message_of(ended)]
    is_answer = not texts[0] and expected.says_on_stdout
    if is_answer:
        texts = _answered(ended)
    found = [f"{one}: {text[:600]}" for text in texts for one in _of_a_text(text, ended)]
    if ended.code in (USAGE, DATA) and not is_answer and _AGAIN.search(texts[0]):  # one finding of many may
        found.append(f"{ended.code} tells to try again: {texts[0][:600]}")
    if any(texts) and expected.names and not any(name in text for name in expected.names for text in texts):
        found.append(f"it names none of {', '.join(expected.names)[:200]}: {' '.join(texts)[:600]}")
    return found


def _answered(ended: Ended) -> list[str]:
    """What is to be mended, of an answer of many findings: each begins a line."""
    blocks = re.split(r"\n(?=\S)", ended.stdout)
    return [" ".join(block.split()) for block in blocks if _FINDING.match(block)] or [""]


def _of_a_text(text: str, ended: Ended) -> list[str]:
    found = []
    if not text:
        return ["it says nothing"]
    if "Traceback" in ended.stderr or "a bug in Yanmo" in ended.stderr:
        found.append("a traceback")
    if "\n" in text:
        found.append("more than a line")
    if len(text) > LONGEST_MESSAGE:
        found.append(f"a message of {len(text)} characters")
    if not text.replace("\n", "").isprintable():
        found.append("what cannot be printed is in the message")
    if inner := _INNER.search(text):
        found.append(f"words of the machinery: {inner[0]}")
    if not TO_DO.search(text):
        found.append("it does not say what to do")
    return found


def _of_the_store(
    before: Mapping[str, str], after: Mapping[str, str], may_commit: tuple[str, ...]
) -> list[str]:
    """No pointer moved, no output changed, none added but by phases before the one that failed."""
    found = []
    for name in sorted({*before, *after}):
        top, _, rest = name.partition("/")
        if before.get(name) == after.get(name) or top in ("runs", "sources", "probes"):
            if ".tmp-" in name and name not in before:
                found.append(f"left behind: {name}")
            continue
        if top == "cas" and name not in before and rest.split("/")[0] in may_commit:
            continue
        what = "appeared" if name not in before else "is gone" if name not in after else "changed"
        found.append(f"store: {name} {what}")
    return found[:5]


def shown(ended: Ended) -> str:
    """How it ended, for a person."""
    brief = {"code": ended.code, "seconds": round(ended.seconds, 2), "MiB": ended.bytes >> 20}
    return f"{json.dumps(brief)} {message_of(ended)[:300]}"
