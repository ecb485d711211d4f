"""The feed, checked against RFC 4287 element by element, as validators of feeds do."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree as xml

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, failure, run_of, text_of

from yanmo.nights.feed import feed_of
from yanmo.nights.lists import NEWEST
from yanmo.nights.telling import tell_end, tell_verdict
from yanmo.store.objects import ObjectStore

ATOM = "{http://www.w3.org/2005/Atom}"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")
OF_FEED = {"author", "category", "generator", "icon", "id", "link", "logo", "rights", "subtitle", "title"}
OF_FEED |= {"updated", "entry", "contributor"}
OF_ENTRY = {"author", "category", "content", "contributor", "id", "link", "published", "rights", "source"}
OF_ENTRY |= {"summary", "title", "updated"}
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def check(text: str, where: str = "https://pages.example/nights/nightly/feed.xml") -> xml.Element:
    """The feed, once it is valid: sections 4.1.1 and 4.1.2 of RFC 4287, and what its types may hold."""
    root = xml.fromstring(text)
    assert root.tag == f"{ATOM}feed"
    _container(root, OF_FEED, where)
    assert _one(root, "author").find(f"{ATOM}name").text
    selves = [link for link in root.iter(f"{ATOM}link") if link.get("rel") == "self"]
    assert len(selves) == 1
    ids = []
    for entry in root.findall(f"{ATOM}entry"):
        _container(entry, OF_ENTRY, where)
        ids.append(_one(entry, "id").text)
        alternates = [link for link in entry.findall(f"{ATOM}link") if link.get("rel") == "alternate"]
        assert len(alternates) == 1, "an alternate of one type and language may be there once"
        content = _one(entry, "content")
        assert content.get("type") == "text" and len(content) == 0
        published = entry.find(f"{ATOM}published")
        assert published is None or RFC_3339.match(published.text)
    assert len(set(ids)) == len(ids)
    return root


def _container(element: xml.Element, known: set[str], where: str) -> None:
    names = [child.tag.removeprefix(ATOM) for child in element]
    assert set(names) <= known, names
    for required in ("id", "title", "updated"):
        assert _one(element, required).text.strip()
    assert urlsplit(_one(element, "id").text).scheme == "urn"
    assert RFC_3339.match(_one(element, "updated").text)
    datetime.fromisoformat(_one(element, "updated").text)
    for link in element.findall(f"{ATOM}link"):
        assert set(link.attrib) == {"rel", "type", "href"} and link.text is None
        whole = urlsplit(urljoin(where, link.get("href")))
        assert whole.scheme == "https" and link.get("href").isascii()
    for category in element.findall(f"{ATOM}category"):
        assert category.get("term")


def _one(element: xml.Element, name: str) -> xml.Element:
    found = element.findall(f"{ATOM}{name}")
    assert len(found) == 1, f"{len(found)} of {name}"
    return found[0]


def test_a_feed_of_good_and_bad_nights_is_valid(store: ObjectStore) -> None:
    tell_verdict(run_of(store, "a", date="2026-11-22"), VERDICT)
    tell_end(run_of(store, "b"), failure("disk full"))
    root = check(text_of(store, "nights/nightly/feed.xml"))
    entries = root.findall(f"{ATOM}entry")
    assert [_one(entry, "title").text for entry in entries] == ["2026-11-23: failed", "2026-11-22: promoted"]
    assert "disk full" in _one(entries[0], "content").text
    assert VERDICT["verse"] in _one(entries[1], "content").text
    assert entries[0].findall(f"{ATOM}link")[0].get("href") == "2026-11-23-b.html"
    terms = [category.get("term") for category in entries[0].findall(f"{ATOM}category")]
    assert terms == ["failed", "look"], "a reader can be asked to show what somebody should look at"


def test_an_entry_keeps_its_id_and_two_stores_share_none(store: ObjectStore, tmp_path: Path) -> None:
    from yanmo.store.opening import open_store

    other = open_store(str(tmp_path / "other"))
    found = []
    for each in (store, store, other):
        tell_verdict(run_of(each), {**VERDICT, "bits": float(len(found))})
        root = check(text_of(each, "nights/nightly/feed.xml"))
        found.append((_one(root, "id").text, _one(root.find(f"{ATOM}entry"), "id").text))
    assert found[0] == found[1] and not set(found[0]) & set(found[2])


def test_a_feed_is_of_the_newest_nights(store: ObjectStore) -> None:
    for day in range(1, 31):
        for half in ("a", "b"):
            tell_verdict(run_of(store, f"{day}{half}", date=f"2026-11-{day:02d}"), VERDICT)
    assert len(check(text_of(store, "nights/nightly/feed.xml")).findall(f"{ATOM}entry")) == NEWEST


def test_hostile_texts_leave_the_feed_valid(store: ObjectStore) -> None:
    hostile = "]]></content><script>alert(1)</script>&bogus;\x00\x0b\ud800\ufffe\u202e<!--"
    tell_verdict(run_of(store), {**VERDICT, "verse": hostile, "sentence": {"en": hostile, "zh": hostile}})
    root = check(text_of(store, "nights/nightly/feed.xml"))
    assert "<script>alert(1)</script>" in _one(root.find(f"{ATOM}entry"), "content").text


def test_addresses_are_whole_where_somebody_said_where_pages_are(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YANMO_PAGES_URL", "https://pages.example/yanmo/")
    tell_verdict(run_of(store), VERDICT)
    root = check(text_of(store, "nights/nightly/feed.xml"))
    found = {link.get("href") for link in root.iter(f"{ATOM}link")}
    assert found == {
        f"https://pages.example/yanmo/nights/nightly/{name}"
        for name in ("feed.xml", "index.html", "2026-11-23-run-1.html")
    }


def test_a_feed_without_nights_is_valid() -> None:
    check(feed_of("nightly", [], "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", 0))
