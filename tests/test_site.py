"""`make docs`: the site shows what the pages say, no link leads nowhere, and its search knows Chinese."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/components"))

import browser as chromium  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not importlib.util.find_spec("material"), reason="mkdocs-material is not installed"),
    pytest.mark.filterwarnings("ignore:pkg_resources"),
]
COMPARED = {"li", "ul", "ol", "pre", "code", "table", "tr", "h1", "h2", "h3", "h4", "img", "blockquote"}


@pytest.fixture(scope="module")
def of_build() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site/build.py")))


@pytest.fixture(scope="module")
def site(of_build: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert of_build.main(folder) == 0
    return folder


def html_of(of_build: SimpleNamespace, site: Path, page: Path) -> Path:
    written = (site / "zh" if page.name.endswith(".zh.md") else site) / of_build.english(page)
    return written.with_name("index.html") if written.stem == "README" else written.with_suffix(".html")


def test_a_page_has_on_the_site_what_it_has_on_a_forge(of_build: SimpleNamespace, site: Path) -> None:
    """MkDocs' parser knows no CommonMark: it takes code of a list for prose, and sub-lists for items."""
    pages, _ = of_build.found()
    assert len(pages) > 60
    forge = MarkdownIt("commonmark").enable("table")
    for page in pages:
        shown = html_of(of_build, site, page).read_text(encoding="utf-8")
        article = shown[shown.index("<article") : shown.index("</article")]
        wanted, found = (
            Counter(tag for tag in re.findall(r"<(\w+)[ />]", html) if tag in COMPARED)
            for html in (forge.render((ROOT / page).read_text(encoding="utf-8")), article)
        )
        assert found == wanted, page


def test_nothing_is_fetched_from_elsewhere_and_no_link_leads_nowhere(site: Path) -> None:
    for page in site.glob("**/*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link|iframe)[^>]* (?:src|href)=\"?(?:https?:)?//[^>]*", html)
        if page.name != "404.html":
            for path in re.findall(r" href=\"(?!\w+:|#)([^\"#]+)", html):
                assert (page.parent / path).exists(), (page, path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[b](docs/how-to/b.md#steps)", 0),
        ("[b](docs/how-to/c.md)", 1),
        ("[b](docs/how-to/b.md#step)", 1),
        ("`[b](docs/how-to/c.md)`", 0),
    ],
)
def test_a_link_or_an_anchor_that_leads_nowhere_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_build: SimpleNamespace, text: str, code: int
) -> None:
    monkeypatch.setitem(of_build.main.__globals__, "ROOT", tmp_path)
    for name in ("README.md", "README.zh.md", *(f"docs/{room}/README.md" for room in of_build.ROOMS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# A\n", encoding="utf-8")
    (tmp_path / "docs/how-to/b.md").write_text("# B\n\n## Steps\n", encoding="utf-8")
    (tmp_path / "README.md").write_text(f"# A\n\n{text}\n", encoding="utf-8")
    assert of_build.main(tmp_path / "site") == code


@pytest.mark.skipif(chromium.program() is None, reason="needs Chromium or Chrome on the PATH")
@pytest.mark.parametrize(
    ("page", "words", "found"), [("index.html", "promote", "romote"), ("zh/index.html", "晋升", "晋升")]
)
def test_the_search_works_from_a_folder_in_both_languages(
    site: Path, tmp_path: Path, page: str, words: str, found: str
) -> None:
    with chromium.browser(tmp_path) as window:
        window.open(site / page)
        window.ask("document.querySelector('#__search').click()")
        window.ask(f"document.querySelector('[data-md-component=search-query]').value = '{words}'")
        until = time.monotonic() + 60
        while not (said := window.ask("document.querySelector('.md-search-result__list').innerText")):
            assert time.monotonic() < until, window.complaints()
            window.ask(
                "document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup'))"
            )
            time.sleep(0.2)
        assert found in said.replace("\u200b", "")
        assert all(url.startswith(("file:", "data:", "about:")) for url in window.requests())
        window.open(site / page, width=390)
        assert window.ask("document.documentElement.scrollWidth") == 390, "wider than a phone"
