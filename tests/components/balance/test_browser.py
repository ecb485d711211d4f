"""The page of balance in a real Chromium: phone and desk, light, dark and paper, keyboard and language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser as chromium
import pytest
from balanced_report import REPORT
from hostile_pages import poisoned

from yanmo.balance.page import Example, page

pytestmark = pytest.mark.skipif(chromium.program() is None, reason="needs Chromium or Chrome on the PATH")
SHOWN = "[...document.querySelectorAll('.{}')].some(e => getComputedStyle(e).display !== 'none')"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = "<script>window.evil = 1</script>" + "name_without_a_space" * 20
    report = poisoned(REPORT, long, keys=("classes", "genres", "rules"), kept=("unit",))
    text = page(report, [Example("ab" * 32, "诗", "synonym", "天地玄黄" * 90, "天地玄青" * 90)])
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
@pytest.mark.parametrize("dark", [False, True])
def test_no_width_makes_the_page_scroll_sideways_and_nothing_is_complained_about(
    window: chromium.Browser, html: Path, width: int, language: str, dark: bool
) -> None:
    window.open(html, width=width, language=language, dark=dark)
    assert window.ask("document.documentElement.scrollWidth") <= width
    assert window.requests() == [html.absolute().as_uri()]
    assert window.complaints() == []
    assert window.ask("typeof window.evil") == "undefined"
    ground = window.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert sum(ground[:3]) < 200 if dark else sum(ground[:3]) > 600


def test_it_prints(window: chromium.Browser, html: Path) -> None:
    window.open(html)
    assert window.pdf().startswith(b"%PDF")


def test_the_keyboard_changes_the_language(window: chromium.Browser, html: Path) -> None:
    window.open(html, language="en-US")
    assert window.ask("document.documentElement.lang") == "en"
    for key, code in (("Tab", 9), ("ArrowRight", 39)):
        for kind in ("keyDown", "keyUp"):
            window.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
    assert window.ask("document.documentElement.lang") == "zh-Hans"
    assert window.ask(SHOWN.format("zh")) is True and window.ask(SHOWN.format("en")) is False
    assert window.ask("getComputedStyle(document.querySelector('.to-zh')).outlineStyle") == "solid"
