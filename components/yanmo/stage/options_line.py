"""Where the one line of options comes from: the form itself, a file, or an object in a bucket."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from yanmo.common.errors import UsageError, in_words
from yanmo.common.given_file import given_text
from yanmo.options.one_line import MOST_CHARACTERS, as_line, read_line
from yanmo.options.values import brief
from yanmo.store.opening import open_store


def options_line(text: str) -> str:
    """Return the options off the form: the line itself, or what the file or URI that it names holds.

    After a file or URI settings may follow, which win over it: `night.txt train.layers=4`.

    Raises:
        UsageError: neither; says what was expected.
    """
    place, line = _parted(text)
    if len(line) > MOST_CHARACTERS:
        raise UsageError(
            f"options: {len(line)} characters, at most {MOST_CHARACTERS}; put them into a file (in a cluster "
            "an object of a bucket) and give its name"
        )
    return _overridden(_held_by(place), _settings_in(line)) if place else line


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """`text`, as `options_line` takes it, with settings (`train.layers` -> `4`) that win over it."""
    if not settings:
        return text
    place, line = _parted(text)
    return " ".join(filter(None, [place and shlex.quote(place), _overridden(line, settings)]))


def _overridden(line: str, settings: Mapping[str, str]) -> str:
    by_name = {name.replace("-", "_"): text for name, text in settings.items()}
    return as_line({**_settings_in(line), **by_name})


def _settings_in(line: str) -> dict[str, str]:
    return {f"{stage}.{name}": text for stage, own in read_line(line).items() for name, text in own.items()}


def _parted(text: str) -> tuple[str, str]:
    """Return the file or URI that `text` begins with, "" without one, and the line that follows."""
    try:
        words = shlex.split(text)
    except ValueError:  # whoever reads the line says so
        return "", text.strip()
    if not words or not _is_place(words[0]) or not all("=" in word for word in words[1:]):
        return "", text.strip()
    return words[0], shlex.join(words[1:])


def _is_place(word: str) -> bool:
    return "=" not in word or "://" in word.partition("=")[0]


def _held_by(place: str) -> str:
    """Return the line of options in a file or at a URI."""
    try:
        if "://" in place:
            folder, _, name = place.rpartition("/")
            return _one_line_in(open_store(folder).read(name)[0].decode("utf-8-sig"))
        what, shown = "a file with a line of options", f"options: {brief(place)}"
        return _one_line_in(given_text(place, what, shown=shown, wrong=UsageError))
    except (OSError, UnicodeDecodeError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else in_words(error)
        raise UsageError(
            f"options: {brief(place)}: {why}; expected STAGE.OPTION=VALUE with blanks between, "
            "or a file or URI that holds it"
        ) from error


def _one_line_in(text: str) -> str:
    """Return a file of options as one line: lines that begin with `#` are left out.

    Raises:
        UsageError: it is not such a file.
    """
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    line = " ".join(kept).strip()
    read_line(line)
    return line
