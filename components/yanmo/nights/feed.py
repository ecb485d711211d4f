"""The newest nights of a channel as an Atom feed (RFC 4287), for a reader of feeds or a chat that takes them.

Its id is drawn once, and each night's is made of it, so that two stores with channels of one name are told
apart. Addresses are relative to the feed where nobody has said where the store's pages are shown.

Alternative not taken: feedgen, another package with lxml in every image, for a tree of a dozen elements.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from xml.etree import ElementTree as xml

from yanmo.nights.changing import SERIAL
from yanmo.nights.line import LINE_OF, night_line
from yanmo.nights.night import SAD, Row, plain
from yanmo.nights.places import feed_name, list_page, page_name
from yanmo.nights.settings import pages_url

ATOM = "http://www.w3.org/2005/Atom"
_XML = "http://www.w3.org/XML/1998/namespace"
_EPOCH = "1970-01-01T00:00:00+00:00"


def feed_of(channel: str, rows: Sequence[Row], feed: str, serial: int) -> str:
    """The feed as XML.

    Args:
        rows: the newest first.
        feed: its id, a URN of a UUID.
    """
    xml.register_namespace("", ATOM)
    root = _element(None, "feed", "")
    root.set(f"{{{_XML}}}lang", "en")
    _element(root, "id", feed)
    _element(root, "title", f"Yanmo: nights of {channel}")
    _element(root, "updated", max((row.changed for row in rows), default=_EPOCH))
    author = _element(root, "author", "")
    _element(author, "name", "Yanmo")
    _link(root, "self", _address(feed_name(channel)), "application/atom+xml")
    _link(root, "alternate", _address(list_page(channel)), "text/html")
    own = uuid.UUID(feed)
    for row in rows:
        _entry(root, own, channel, row)
    xml.indent(root)
    body = xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n<!-- {SERIAL} {serial} -->\n{body}\n'


def _entry(root: xml.Element, feed: uuid.UUID, channel: str, row: Row) -> None:
    entry = _element(root, "entry", "")
    _element(entry, "id", uuid.uuid5(feed, row.name).urn)
    _element(entry, "title", f"{row.date}: {row.state}")
    _element(entry, "updated", row.changed)
    _element(entry, "published", row.began)
    _link(entry, "alternate", _address(page_name(channel, row)), "text/html")
    category = _element(entry, "category", "")
    category.set("term", row.state)
    if row.state in SAD:
        _element(entry, "category", "").set("term", "look")
    lines = [night_line(channel, row, language, link="") for language in LINE_OF]
    content = _element(entry, "content", "\n".join([*lines, *([row.verse] if row.verse else [])]))
    content.set("type", "text")


def _element(parent: xml.Element | None, name: str, text: str) -> xml.Element:
    tag = f"{{{ATOM}}}{name}"
    made = xml.Element(tag) if parent is None else xml.SubElement(parent, tag)
    made.text = plain(text, 10_000) or None
    return made


def _link(parent: xml.Element, relation: str, address: str, kind: str) -> None:
    link = _element(parent, "link", "")
    link.set("rel", relation)
    link.set("type", kind)
    link.set("href", address)


def _address(name: str) -> str:
    """Where a reader finds an object: next to the feed, unless somebody has said where pages are shown."""
    public = pages_url()
    return f"{public}/{name}" if public else name.rpartition("/")[2]
