"""report.html, token counts, and the size of the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from yanmo.balance.page import page
from yanmo.balance.preview import Example
from yanmo.balance.token_count import TokenCount
from yanmo.common.errors import DataError
from yanmo.stage.run import main
from yanmo.store.output import Output
from yanmo.tokenize import work as tokenize
from yanmo.tokenize.config import STAGE as TOKENIZE

Run = Callable[..., Any]


class Page(HTMLParser):
    """Collects tags and text; knows which tags were left open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br", "html", "rect", "link", "img"):
            self.open.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def html(output: Output) -> str:
    return output.path("report.html").read_text(encoding="utf-8")


def test_the_page_has_tables_bars_and_examples_and_loads_nothing(balance: Run) -> None:
    balanced = balance("--quotas", "wen=200%", "--augment", "wen:synonym=0.5", "--by", "genre")
    text = html(balanced.output())
    page = Page(text)
    assert page.tags.count("svg") == 3 and page.tags.count("rect") == 3 * 2 * 4 and "script" not in page.tags
    assert page.open == []
    assert re.search("<ins>[^<]+</ins>", text) and "http" not in text and len(text) < 200_000
    entry = balanced.output().entries("report.html")[0]
    assert entry.role == "record"


def test_labels_of_the_documents_are_escaped(balance: Run) -> None:
    report = balance("--by", "dynasty").report()
    report["classes"]['<b>"&'] = report["classes"].pop("唐")
    report["augmentation"] = {"options": "<i>", "rules": {"<i>": 1}, "shared": 0, "advice": ["<i>"]}
    text = page(report, [Example("ab" * 32, "<i>", "synonym", "甲<u>乙", "甲<u>丙")])
    assert "<b>" not in text and "<i>" not in text and "<u>" not in text
    shown = Page(text)
    assert shown.open == [] and '<b>"&' in "".join(shown.words) and "<i> synonym" in "".join(shown.words)


@pytest.fixture
def with_tokenizer(balance: Run) -> Any:
    balanced = balance("--quotas", "")
    argv = ["--store", str(balanced.root), "--metrics-port", "-1", "--vocab-size", "2048", "--workers", "1"]
    assert main(TOKENIZE, tokenize.work, prepare=tokenize.prepare, argv=argv) == 0
    return balanced


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
    with pytest.raises(DataError, match=r"tokenizer.json: not a tokenizer.json"):
        TokenCount(path)


def test_the_estimate_counts_characters_line_breaks_and_the_end() -> None:
    assert TokenCount().of(pa.chunked_array([["天地", "玄\n黄"], [""]])).tolist() == [3, 4, 1]
    assert TokenCount().of(["天"]).tolist() == [2]
