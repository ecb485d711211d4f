"""The page in a real Chromium: two languages, phone and desk, light, dark and paper, and hostile text."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

import browser as chromium
from test_page import HOSTILE, with_everything

pytestmark = pytest.mark.skipif(chromium.program() is None, reason="needs Chromium or Chrome on the PATH")
VISIBLE = "(e => e && getComputedStyle(e).display !== 'none')"


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(new_stage):
    """A page with a champion, a hostile sample, and every table."""
    from yanmo.promote.page.rendering import render

    stage = new_stage()
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    long = "春江潮水连海平，海上明月共潮生。" * 40
    stage.evaluate(stage.model(2), 7.8, texts=(HOSTILE, long, "<style>body{display:none}</style>"))
    stage.promote()
    report = json.loads(stage.written("report.json"))
    report |= with_everything()
    report["stages"][0]["options"]["hostile"] = HOSTILE * 20
    return render(report)


@pytest.fixture
def html(page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def test_nothing_is_asked_for_and_nothing_is_complained_about(window, html):
    window.open(html)
    assert window.requests() == [html.absolute().as_uri()]
    assert window.complaints() == []
    assert window.ask("document.querySelectorAll('img, iframe, .verse style').length") == 0
    assert window.ask("document.scripts.length") == 1


def test_a_script_that_got_into_the_page_would_not_run(window, html, tmp_path):
    broken = tmp_path / "broken.html"
    text = html.read_text(encoding="utf-8")
    evil = "<script>window.evil = 1</script><p onclick='window.evil = 2' id='trap'>x</p>"
    evil += "<img src='//evil.example/x'>"
    broken.write_text(text.replace("<footer>", evil + "<footer>"), encoding="utf-8")
    window.open(broken)
    window.ask("document.getElementById('trap').click()")
    assert window.ask("typeof window.evil") == "undefined"
    assert not [url for url in window.requests() if "evil.example" in url and not blocked(window, url)]
    assert any("Content Security Policy" in words for words in window.complaints())


def blocked(window, url):
    """Chromium announces a request that its policy then refuses."""
    ids = {e["params"]["requestId"] for e in window.events if e.get("method") == "Network.loadingFailed"}
    sent = [e["params"] for e in window.events if e.get("method") == "Network.requestWillBeSent"]
    return all(p["requestId"] in ids for p in sent if p["request"]["url"] == url)


@pytest.mark.parametrize(
    ("language", "shown"),
    [("zh-CN", "晋升："), ("en-US", "Promoted: "), ("de", "Promoted: ")],
)
def test_the_language_is_the_browsers_and_a_click_changes_it(window, html, language, shown):
    window.open(html, language=language)
    assert window.ask("document.querySelector('h1').innerText").startswith(shown)
    other = "en" if shown == "晋升：" else "zh"
    window.ask(f"document.querySelector('label[for=lang-{other}]').click()")
    assert window.ask("document.documentElement.lang") == {"en": "en", "zh": "zh-Hans"}[other]
    words = window.ask("document.querySelector('h1').innerText")
    assert words.startswith("Promoted: " if other == "en" else "晋升：")
    mixed = window.ask(
        f"[...document.querySelectorAll('.{'zh' if other == 'en' else 'en'}')].some({VISIBLE})"
    )
    assert mixed is False


def test_a_table_that_is_too_wide_for_a_phone_scrolls_alone_and_shows_that_it_does(window, html):
    window.open(html, width=360)
    window.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    wider = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    assert window.ask(f"{wider}.length") >= 1
    words = f"{wider}.map(e => getComputedStyle(e, '::before').content).join()"
    assert "scroll sideways" in window.ask(words)
    window.ask("document.querySelector('label[for=lang-zh]').click()")
    assert "左右滑动" in window.ask(words) and "scroll" not in window.ask(words)
    first = f"{wider}[0].querySelector('tbody th').getBoundingClientRect().left"
    before = window.ask(first)
    window.ask(f"{wider}[0].scrollLeft = 60")
    assert window.ask(first) == before, "the names of the rows stay in sight"


@pytest.mark.parametrize("width", [360, 768, 1400])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_no_width_makes_the_page_scroll_sideways(window, html, width, language):
    window.open(html, width=width, language=language)
    window.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert window.ask("document.documentElement.scrollWidth") <= width


def test_light_and_dark_differ_and_can_be_read(window, html):
    grounds = []
    for dark in (False, True):
        window.open(html, dark=dark)
        numbers = "getComputedStyle(document.body).%s.match(/\\d+/g).slice(0, 3).map(Number)"
        ground, ink = (window.ask(numbers % name) for name in ("backgroundColor", "color"))
        assert contrast(ground, ink) > 7  # WCAG 2.2, level AAA
        grounds.append(sum(ground))
    assert grounds[0] > 600 > 200 > grounds[1]


def contrast(first, second):
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""

    def luminance(color):
        parts = [c / 255 for c in color]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_it_prints_with_everything_unfolded(window, html):
    window.open(html)
    assert window.pdf().startswith(b"%PDF")
    assert window.ask("[...document.querySelectorAll('details')].every(d => d.open)") is True


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_words_and_figures_fit_a_phone_without_a_swipe_but_for_the_widest_table(window, html, language):
    """Only the table with a column for each baseline, and long commands, may be wider than the screen."""
    window.open(html, width=390, language=language)
    window.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = """[...document.querySelectorAll('table.rules, table.words')].filter(t => t.offsetParent
      && t.parentElement.scrollWidth > t.parentElement.clientWidth + 1).map(t => t.innerText.slice(0, 60))"""
    assert window.ask(f"{wide}.join('|')") == ""


def test_no_table_is_cut_on_paper(window, html):
    window.open(html, width=690)  # A4 less the margins, at 96 pixels an inch
    window.call("Emulation.setEmulatedMedia", media="print")
    window.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    found = window.ask(cut)
    window.call("Emulation.setEmulatedMedia", media="")
    assert found == 0
