"""How balance counts tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from yanmo.balance.document_table import TokenCount
from yanmo.balance.report import _MOST_ROWS, log_report
from yanmo.common.errors import DataError
from yanmo.stage.run import main
from yanmo.tokenize import work as tokenize
from yanmo.tokenize.config import STAGE as TOKENIZE

Run = Callable[..., Any]


@pytest.fixture
def with_tokenizer(balance: Run) -> Any:
    balanced = balance("--quotas", "")
    argv = ["--store", str(balanced.root), "--metrics-port", "-1", "--vocab-size", "2048", "--workers", "1"]
    assert main(TOKENIZE, tokenize.STEPS, argv) == 0
    return balanced


@pytest.mark.long
def test_tokens_are_counted_with_a_tokenizer_as_training_counts_them(
    with_tokenizer: Any, balance: Run
) -> None:
    report = balance("--quotas", "", "--tokenizer", "latest").report()
    assert report["tokens"] == "counted"
    texts = [row["text"] for row in with_tokenizer.rows() if row["genre"] == "词"]
    path = with_tokenizer.output("tokenizer").path("tokenizer.json")
    expected = sum(len(Tokenizer.from_file(str(path)).encode(t).ids) + 1 for t in texts)
    assert report["classes"]["词"]["after"]["tokens"] == expected
    estimated = balance("--quotas", "").report()
    assert estimated["tokens"].startswith("estimated")
    assert estimated["classes"]["词"]["after"]["tokens"] == sum(len(t) + 1 for t in texts)


def test_a_text_has_its_tokens_and_the_mark_of_its_end(with_tokenizer: Any) -> None:
    path = with_tokenizer.output("tokenizer").path("tokenizer.json")
    texts = [row["text"] for row in with_tokenizer.rows()]
    encode = Tokenizer.from_file(str(path)).encode
    assert TokenCount(path).of(texts).tolist() == [len(encode(text).ids) + 1 for text in texts]


def test_quotas_in_tokens_are_met_to_the_token(with_tokenizer: Any, balance: Run) -> None:
    arguments = ("--quotas", "shi=2000,ci=3000,*=0", "--unit", "tokens", "--tokenizer", "latest")
    figures = balance(*arguments).report()["classes"]
    assert [figures[g]["after"]["tokens"] for g in ("诗", "词", "文")] == [2000, 3000, 0]


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer.json: not a tokenizer"):
        TokenCount(path)


def test_the_estimate_counts_characters_line_breaks_and_the_end() -> None:
    assert TokenCount().of(pa.chunked_array([["天地", "玄\n黄"], [""]])).tolist() == [3, 4, 1]
    assert TokenCount().of(["天"]).tolist() == [2]


def test_the_log_shows_the_largest_classes_and_how_many_more_there_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    classes = {}
    for number in range(_MOST_ROWS + 3):
        side = {"documents": 1, "characters": number + 1, "shares": {"characters": 0.1, "tokens": 0.1}}
        classes[f"c{number}"] = {"quota": "", "epochs": 1.0, "before": side, "after": side}
    log_report({"by": "genre", "classes": classes, "warnings": ["quotas are not met"]})
    *rows, more, warning = caplog.messages
    assert [row.split()[0] for row in rows] == ["genre", *(f"c{n}" for n in range(3, _MOST_ROWS + 3))]
    assert (more, warning) == ("... and 3 smaller classes; report.json has all", "quotas are not met")
