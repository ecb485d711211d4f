"""What the messages of errors say, by the exit code that they end with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("folder", ["components", "pipelines"])
def test_no_wrong_option_and_no_wrong_data_is_told_to_be_tried_again(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (ROOT / folder).rglob("*.py")
        for line, text in said(ast.parse(path.read_text(encoding="utf-8")))
        if any(again in text for again in AGAIN)
    ]
    assert not wrong


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


@pytest.mark.parametrize("folder", ["components", "pipelines"])
def test_every_refusal_says_what_to_do(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in (ROOT / folder).rglob("*.py")
        for line, text in without_advice(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not wrong


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


def counted(source: str) -> Iterator[str]:
    """What log lines of a source say with a number before a plural, which is wrong for one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LOGS and node.args:
            text = getattr(node.args[0], "value", "")
            if isinstance(text, str) and _COUNTED.search(text):
                yield text


@pytest.mark.parametrize("folder", ["components", "pipelines"])
def test_a_line_of_the_log_is_right_about_one_thing_too(folder: str) -> None:
    """`yanmo.common.words.plural` says `1 validation` and `2 validations`."""
    paths = (ROOT / folder).rglob("*.py")
    wrong = [f"{path.name}: {text}" for path in paths for text in counted(path.read_text(encoding="utf-8"))]
    assert not wrong


def test_a_plural_behind_a_number_is_seen() -> None:
    assert list(counted("log.info('no gain in %d validations', 1)")) == ["no gain in %d validations"]
    assert not list(counted("log.info('%d of %d files', 1, 2); log.info('no gain in %s', 1)"))
