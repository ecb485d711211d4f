"""What the messages of errors say, by the exit code that they end with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_a_message_in_parts_is_seen() -> None:
    program = """raise DataError(f"{x}: changed; run the same "\n f"command again when {y}") from error"""
    assert [text for _, text in said(ast.parse(program.replace("\\n", "")))] == [
        ": changed; run the same command again when "
    ]
