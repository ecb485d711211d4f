"""What the messages of errors say, by the exit code that they end with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from chaos.hostile.rule import TO_DO

ROOT = Path(__file__).parents[1]
FINAL = ("UsageError", "DataError", "Damaged")
"""Errors that end with 64 or 65: the same command ends the same way."""
AGAIN = ("same command again", "run again", "try again", "try later")


def said(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and texts of the errors of FINAL that are raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in FINAL:
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield node.lineno, "".join(text for text in texts if isinstance(text, str))


_SAYS_ITSELF = ("error", "problem", "where", "advice", "known", "mend", "expected", "_meant")
_ADVICE = re.compile("AGAIN|EXPECTED|ADVICE|FORMS|CONVERT|HINT|wanted")
"""Placeholders of what somebody else says: of an error with its own advice, or a text beside it."""


def without_advice(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and texts of the errors of FINAL, and of contradictions, that say nothing of what to do."""
    for node in ast.walk(tree):
        is_error = isinstance(node, ast.Call) and getattr(node.func, "id", "") in FINAL
        is_contradiction = isinstance(node, ast.Call) and ast.unparse(node.func) == "problems.append"
        if not (is_error or is_contradiction):
            continue
        parts = [each for each in ast.walk(node) if isinstance(each, ast.FormattedValue)]
        names = {
            getattr(each, "id", getattr(each, "attr", "")) for part in parts for each in ast.walk(part.value)
        }
        names |= {getattr(node.args[0], "id", "")} if node.args else {"where"}
        is_told = names & set(_SAYS_ITSELF) or any(map(_ADVICE.search, names))
        texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        text = "".join(text for text in texts if isinstance(text, str))
        if text and not is_told and not TO_DO.search(text):
            yield node.lineno, text


def test_a_refusal_without_advice_is_seen() -> None:
    for program in ('raise DataError(f"{x}: no such thing")', 'problems.append("--heads 3 is odd")'):
        assert len(list(without_advice(ast.parse(program)))) == 1
    for program in ('raise DataError(f"{x}: gone; look at it")', 'raise DataError(f"{x}: {error}")'):
        assert not list(without_advice(ast.parse(program)))


def test_a_message_in_parts_is_seen() -> None:
    program = """raise DataError(f"{x}: changed; run the same "\n f"command again when {y}") from error"""
    assert [text for _, text in said(ast.parse(program.replace("\\n", "")))] == [
        ": changed; run the same command again when "
    ]


NOUNS = """
documents texts files genres steps tokens characters sentences ids words epochs twins validations runs nodes
models outputs shards pieces chats prompts samples originals trainings parameters lines records checkpoints
forwards questions pairs GPUs CPUs
"""
_COUNTED = re.compile(rf"(?<!of )%d ({'|'.join(NOUNS.split())})\b")
LOGS = ("debug", "info", "warning", "error")


def counted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Log lines of a source that have a number before a plural, which is wrong for one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LOGS and node.args:
            text = getattr(node.args[0], "value", "")
            if isinstance(text, str) and _COUNTED.search(text):
                yield node.lineno, text


def test_messages_of_our_sources() -> None:
    """No wrong option or data is told to be tried again, every refusal says what to do, and a line of the log
    is right about one thing, too (`yanmo.common.words.plural` says `1 validation` and `2 validations`)."""
    wrong = []
    for path in (path for folder in ("components", "pipelines") for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        again = [(line, text) for line, text in said(tree) if any(each in text for each in AGAIN)]
        found = {"tried again": again, "no advice": without_advice(tree), "a plural": counted(tree)}
        wrong += [f"{path}:{line}: {what}: {text}" for what, some in found.items() for line, text in some]
    assert not wrong


def test_a_plural_behind_a_number_is_seen() -> None:
    assert list(counted(ast.parse("log.info('no gain in %d validations', 1)")))
    assert not list(counted(ast.parse("log.info('%d of %d files', 1, 2); log.info('no gain in %s', 1)")))
