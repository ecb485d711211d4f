"""How text is cut into documents, said before it is read: nothing in a .txt file marks them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from yanmo.common.words import plural
from yanmo.curate.options.source_options import LAYOUTS
from yanmo.curate.sources.batches import Reading, layout_of, read_batches
from yanmo.curate.sources.listing import Source
from yanmo.curate.sources.parsing import text_blocks
from yanmo.curate.sources.text_layouts import cut_at_chapters

log = logging.getLogger(__name__)
_LOOKED_AT = 64 << 10
"""Bytes of the first file that are cut for the message."""
_CUT = {
    "auto": "as each looks",
    "block": "at blank lines",
    "line": "at every line",
    "file": "nowhere: each is a document",
    "chapter": "at chapters",
}


def announce_layouts(sources: Sequence[Source], how: Reading, max_characters: int) -> None:
    """Log for each layout in use how it cuts, with an example that one can check.

    Args:
        max_characters: above it a file of Markdown is cut.

    Raises:
        DataError: the example's file cannot be read.
    """
    pages = [s for s in sources if s.form == "md" and layout_of(s, how.layout) == "file"]
    if pages:
        log.info(
            "%s of Markdown, each a document; one above --max-characters %s is cut at headings",
            plural(len(pages), "file"),
            max_characters,
        )
    texts = [source for source in sources if source.form == "txt"]
    for layout in LAYOUTS:
        chosen = [source for source in texts if layout_of(source, how.layout) == layout]
        if chosen:
            log.info("%d .txt file(s) are cut %s; %s", len(chosen), _CUT[layout], _example(chosen[0], how))
    if texts:
        log.info(
            "%s after the place, or --text-layout, cuts them in another way",
            " or ".join(f"`;layout={name}`" for name in LAYOUTS if name != how.layout),
        )


def _example(source: Source, how: Reading) -> str:
    first = next(read_batches(source, [], _LOOKED_AT, lambda _: None, how), None)
    data = b"" if first is None else first.data
    layout = "" if first is None else first.layout
    if layout == "chapter":
        data = data[:_LOOKED_AT]
        documents = len(cut_at_chapters(data.decode("utf-8", "ignore")))
    else:
        documents = sum(1 for block, _ in text_blocks(data, layout) if block and not block.isspace())
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    return f"{source.name} begins with {documents} document(s) in {lines} line(s)"
