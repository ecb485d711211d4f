"""The text that tokenizers are compared on: some to learn from, some held out."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from yanmo.common.errors import DataError, in_words
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.store.output import Output

HELD_OUT = 20
"""In raw files, one document in this many is held out."""
_FORMS = "expected .jsonl, .jsonl.zst, .jsonl.gz, .parquet or .txt"


@dataclass
class SampleText:
    """Texts to learn from and texts to judge by."""

    learned: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)

    def limited(self, learned: int, held_out: int) -> SampleText:
        """Evenly spread documents of at most so many characters each.

        Raises:
            DataError: nothing is left of one of the two.
        """
        found = SampleText(_spread(self.learned, learned), _spread(self.held_out, held_out))
        if not found.learned or not found.held_out:
            raise DataError(
                f"--files or --documents: {plural(len(found.learned), 'document')} to learn from, "
                f"{len(found.held_out)} to judge by: expected "
                "some of both; give more text"
            )
        return found


def _spread(texts: Sequence[str], characters: int) -> list[str]:
    total = sum(map(len, texts))
    if total <= characters:
        return list(texts)
    found, kept, passed = [], 0, 0
    for text in texts:
        passed += len(text)
        if kept + len(text) <= passed * characters / total:
            found.append(text)
            kept += len(text)
    return found


def of_output(output: Output) -> SampleText:
    """The train split of a documents output, and its valid split."""
    texts = {
        split: [text for path in output.paths(f"{split}-*.parquet") for text in _parquet(path)]
        for split in ("train", "valid")
    }
    return SampleText(texts["train"], texts["valid"])


def of_files(paths: Iterable[Path], text_field: str) -> SampleText:
    """The documents of raw files; one in twenty is held out.

    Raises:
        DataError: a file is missing, damaged or of another form.
    """
    found = SampleText()
    for path in paths:
        for number, text in enumerate(_documents(path, text_field)):
            (found.held_out if number % HELD_OUT == 0 else found.learned).append(text)
    return found


def _documents(path: Path, text_field: str) -> Iterator[str]:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, and a device never ends
            raise DataError(f"{path}: expected a file, found something else; {_FORMS}")
        if path.suffix == ".parquet":
            yield from _parquet(path, text_field)
        elif path.suffix == ".txt":
            yield path.read_text(encoding="utf-8")
        elif ".jsonl" in path.suffixes:
            yield from _lines(path, text_field)
        else:
            raise DataError(f"{path}: its name has no known extension; {_FORMS}")
    except (OSError, EOFError, ValueError, RecursionError, pa.ArrowException) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read: {in_words(error)}; {_FORMS}") from error


def _parquet(path: Path, column: str = "text") -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        if column not in file.schema_arrow.names:
            raise DataError(
                f"{path}: no column {column!r}; found {', '.join(file.schema_arrow.names)}; name the "
                "text's by --text-field"
            )
        for batch in file.iter_batches(1024, columns=[column]):
            yield from (text for text in batch[column].to_pylist() if text)


def _lines(path: Path, text_field: str) -> Iterator[str]:
    with pa.input_stream(str(path)) as file:  # knows .gz and .zst by their names
        for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8"), 1):
            value = json_value(line)
            if not isinstance(value, dict) or not isinstance(value.get(text_field), str):
                raise DataError(
                    f"{path}:{number}: no text in the field {text_field!r}; give another --text-field"
                )
            if value[text_field]:
                yield value[text_field]
