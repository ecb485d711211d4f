"""From what a person types to an opened token cache and its tokenizer."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.formats.packing_settings import SPLITS
from yanmo.formats.round_trip import open_tokenizer
from yanmo.formats.token_cache import DocumentIndex, TokenCache
from yanmo.formats.token_file import Ids
from yanmo.store.output import Output


class CachedDocuments:
    """The documents of a cache in its order (train, then valid), decoded on demand."""

    def __init__(self, output: Output) -> None:
        self.cache = TokenCache.open(output)
        self.splits: list[tuple[str, DocumentIndex]] = [(name, self.cache.split(name)) for name in SPLITS]

    def __len__(self) -> int:
        return sum(len(index) for _, index in self.splits)

    @cached_property
    def tokenizer(self) -> Any:
        """The cache's own tokenizer, as `tokenizers` reads it."""
        return open_tokenizer(self.cache.tokenizer.path("tokenizer.json"))

    def place(self, number: int) -> tuple[str, DocumentIndex, int]:
        """Split, index and row of the document with this number.

        Raises:
            UsageError: there are not so many.
        """
        row = number
        for name, index in self.splits:
            if 0 <= row < len(index):
                return name, index, row
            row -= len(index)
        raise UsageError(f"document {number}: expected 0 to {len(self) - 1}")

    def ids_of(self, number: int) -> Ids:
        """Ids of a document, `<|bos|>` and `<|eos|>` included; a view of the cache."""
        _, index, row = self.place(number)
        begin = int(index.offset[row])
        return self.cache.tokens[int(index.shard[row])][begin : begin + int(index.length[row])]

    def tokens(self, number: int) -> list[int]:
        """`ids_of` as a list."""
        found: list[int] = self.ids_of(number).tolist()
        return found

    def text(self, number: int) -> str:
        """A document's text, as it was before it became tokens."""
        decoded: str = self.tokenizer.decode(self.tokens(number)[1:-1], skip_special_tokens=False)
        return decoded

    def number_of(self, document: str) -> int:
        """The number of the document whose id begins so.

        Raises:
            UsageError: none does, or several do.
        """
        found, base = [], 0
        for _, index in self.splits:
            found += [base + row for row, one in enumerate(index.ids) if one.startswith(document)]
            base += len(index)
        if len(found) != 1:
            raise UsageError(
                f"document {document[:70]!r}: {len(found)} documents have an id that begins so; expected one"
            )
        return found[0]
