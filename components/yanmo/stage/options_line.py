"""Where the one line of options comes from: the form itself, a file, or an object in a bucket."""

from __future__ import annotations

from yanmo.common.errors import UsageError, in_words
from yanmo.common.given_file import given_text
from yanmo.options.one_line import read_line
from yanmo.options.values import brief
from yanmo.store.opening import open_store


def options_line(text: str) -> str:
    """The options off the form: the line itself, or what the file or URI that it names holds.

    Raises:
        UsageError: neither; says what was expected.
    """
    word = text.strip()
    if not word or "=" in word or " " in word:
        return word
    try:
        if "://" in word:
            place, _, name = word.rpartition("/")
            return _one_line_in(open_store(place).read(name)[0].decode("utf-8-sig"))
        what, shown = "a file with a line of options", f"options: {brief(word)}"
        return _one_line_in(given_text(word, what, shown=shown, wrong=UsageError))
    except (OSError, UnicodeDecodeError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else in_words(error)
        raise UsageError(
            f"options: {brief(word)}: {why}; expected STAGE.OPTION=VALUE with blanks between, "
            "or a file or URI that holds it"
        ) from error


def _one_line_in(text: str) -> str:
    """A file of options as one line: lines that begin with `#` are left out.

    Raises:
        UsageError: it is not such a file.
    """
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    line = " ".join(kept).strip()
    read_line(line)
    return line
