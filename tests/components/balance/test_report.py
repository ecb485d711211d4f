"""report.html, token counts, and the size of the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from balanced_report import FIGURES, REPORT, poisoned_page
from hostile_pages import HOSTILE, Tree, check, poisoned
from hypothesis import given, settings
from tokenizers import Tokenizer

from yanmo.balance.page import Example, page
from yanmo.balance.token_count import TokenCount
from yanmo.common.errors import DataError
from yanmo.stage.run import main
from yanmo.store.output import Output
from yanmo.tokenize import work as tokenize
from yanmo.tokenize.config import STAGE as TOKENIZE

Run = Callable[..., Any]


def html(output: Output) -> str:
    return output.path("report.html").read_text(encoding="utf-8")


def test_the_page_has_tables_bars_and_examples_and_loads_nothing(balance: Run) -> None:
    balanced = balance("--quotas", "wen=200%", "--augment", "wen:synonym=0.5", "--by", "genre")
    text = html(balanced.output())
    tags = [tag for tag, _ in Tree(text).tags]
    attributes = [name for _, found in Tree(text).tags for name, _ in found]
    assert tags.count("figure") == 3 and text.count('class="track"') == 3 * 2 * 4
    assert not {"src", "href", "action"} & set(attributes) and tags.count("script") == 1
    assert re.search("<ins>[^<]+</ins>", text) and "//" not in text and len(text) < 200_000
    entry = balanced.output().entries("report.html")[0]
    assert entry.role == "record"


@given(HOSTILE)
@settings(max_examples=40, deadline=None)
def test_every_text_of_the_report_is_shown_as_it_is_and_obeyed_by_nothing(more: str) -> None:
    check(poisoned_page, more)


def test_names_of_any_length_and_any_number_of_classes_stay_below_a_megabyte() -> None:
    long = "<月>" * 4000
    report = poisoned(REPORT, long, keys=("classes", "genres", "rules"), kept=("unit",))
    report["classes"] = {f"{i}{long}": {**FIGURES, "quota": long, "missing": 1} for i in range(2000)}
    report["warnings"] = [f"{i}: {long}" for i in range(2000)]
    text = page(report, [Example("ab" * 32, long, long, long, f"月{long}")] * 3)
    assert len(text.encode()) < 1_000_000
    assert "and 1,960 smaller ones" in text and "and 1,988 more" in text


def test_half_of_a_surrogate_pair_is_shown_as_what_cannot_be_shown() -> None:
    text = poisoned_page("\ud800")
    assert text.encode() and text.count("\ufffd") > 10


def test_the_page_shows_each_class_and_leaves_out_what_it_has_not() -> None:
    words = " ".join("".join(Tree(page(REPORT, [])).words).split())
    assert "Balance by配比，按 dynasty" in words
    assert "唐300%32.00" in words and "诗2.001,234" in words, "no quota, nothing missing by genre"
    assert "Examples" not in words


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
