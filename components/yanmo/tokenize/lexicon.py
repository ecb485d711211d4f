"""jieba's dictionary as a unigram vocabulary.

jieba without HMM is a Viterbi search over word frequencies, so a Unigram model with the same frequencies
finds the same words: the only difference seen is in exact ties such as 呵呵呵, which the two break
differently. The dictionary is read as a file (0.4 to 0.6 CPU-seconds, a third of jieba's own loading).

User dictionaries are read by jieba itself, so that a word without a frequency gets the one that jieba would
give it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import logging
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from yanmo.common.errors import DataError, EnvironmentFault
from yanmo.common.words import plural
from yanmo.options.values import brief

log = logging.getLogger(__name__)
USER_FILE = "user_dictionary.txt"
"""File in a tokenizer made with user dictionaries that holds their lines."""
_WORD = re.compile(r"[\u4E00-\u9FD5a-zA-Z+#&\._%\-]+")
"""jieba's own pattern of words, without digits: a digit is its own token, except in words of a user
dictionary."""
_REACHABLE = re.compile(r"[\u4E00-\u9FD5a-zA-Z0-9+#&\._%\-]+")
"""jieba's re_han_default: other characters end a block, and no word contains them."""
_USER_LINE = re.compile(r"([^\s\x00-\x1f\x7f-\x9f]+)(?: ([0-9]{1,15}))?(?: ([a-z]+))?")
_JIEBAS_LINE = re.compile(r"((?!.*(?:  |[\x00-\x1f\x7f-\x9f])).+?)( [0-9]+)?( [a-z]+)?")
"""As jieba reads a line, so that blanks may stand in a word; here no two in a row, nor control characters."""
_MAX_WORD, _MAX_REST = 100, 40
"""Characters of a word (jieba's longest has 16), and of its frequency and tag."""


@dataclass(frozen=True)
class Lexicon:
    """Words and their frequencies."""

    frequency: dict[str, int]
    total: int
    """Sum over all lines, as jieba computes it: B超 is listed twice and counts twice."""
    sha256: str
    """Digest of the dictionary file."""
    user: bytes = b""
    """Lines of the user dictionaries."""
    user_words: frozenset[str] = frozenset()

    def scores(self, words: Iterable[str]) -> list[float]:
        """Log probabilities, as in jieba; an unknown word counts as seen once."""
        log_total, frequency = math.log(self.total), self.frequency
        return [math.log(frequency.get(word) or 1) - log_total for word in words]

    def words(self) -> list[str]:
        """Words of two or more characters that jieba can find, in the order of its file."""
        return [
            w
            for w, f in self.frequency.items()
            if len(w) > 1 and f and (_WORD.fullmatch(w) or w in self.user_words)
        ]


def dictionary_path() -> Path:
    """Return the dictionary file of the installed jieba.

    Raises:
        EnvironmentFault: jieba is not installed.
    """
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.origin:
        raise EnvironmentFault(
            "jieba is not installed; in Yanmo's checkout: pip install '.[data]', or use the data image"
        )
    return Path(spec.origin).parent / "dict.txt"


def read_lexicon(path: Path) -> Lexicon:
    """Read a dictionary in jieba's format: lines of `word frequency tag`.

    Raises:
        DataError: a line has another format.
    """
    data = path.read_bytes()
    lines = data.decode("utf-8").splitlines()
    fields = " ".join(lines).split(" ")
    try:
        if len(fields) != 3 * len(lines):
            raise ValueError(f"{len(fields)} fields in {len(lines)} lines")
        counts = list(map(int, fields[1::3]))
    except ValueError as error:
        raise DataError(f"{path}: expected lines of `word frequency tag`, found {error}") from error
    frequency = dict(zip(fields[::3], counts, strict=True))
    return Lexicon(frequency, sum(counts), hashlib.sha256(data).hexdigest())


@functools.cache
def jieba_tokenizer(user: bytes = b"") -> Any:
    """jieba's own tokenizer, read from its dictionary without its cache file.

    The cache file has a fixed name in the shared temporary folder, and saves no time here.

    Args:
        user: lines of user dictionaries, as returned by `user_lines`.
    """
    tokenizer = _empty_jieba()
    if user:
        plain = jieba_tokenizer()
        tokenizer.FREQ, tokenizer.total = dict(plain.FREQ), plain.total
        tokenizer.load_userdict(io.BytesIO(user))
        return tokenizer
    with dictionary_path().open("rb") as file:
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(file)
    return tokenizer


def jieba_for(texts: Sequence[str], user: bytes = b"") -> Any:
    """jieba's own tokenizer with the part of its dictionary that these texts can use.

    It segments them as the whole one does and loads in a fifth of the time: jieba looks up only substrings of
    a text, so a word whose first two characters are nowhere next to each other is never found.

    Args:
        user: as for `jieba_tokenizer`; words without a frequency get theirs from the words inside them.
    """
    beginnings = {
        s[i : i + n] for s in (*texts, *user.decode().split("\n")) for i in range(len(s)) for n in (1, 2)
    }
    table = _dictionary_table()
    few = table.filter(pc.is_in(table["beginning"], pa.array(sorted(beginnings), pa.string())))
    lines = map("%s %d\n".__mod__, zip(*few.select([0, 1]).to_pydict().values(), strict=True))
    tokenizer = _empty_jieba()
    tokenizer.FREQ, _ = tokenizer.gen_pfdict(io.BytesIO("".join(lines).encode()))
    tokenizer.total = pc.sum(table["frequency"]).as_py()
    if user:
        tokenizer.load_userdict(io.BytesIO(user))
    return tokenizer


@functools.cache
def _dictionary_table() -> pa.Table:
    """For each line of jieba's dictionary: word, frequency, its first two characters or its only one."""
    table = csv.read_csv(
        dictionary_path(),
        csv.ReadOptions(use_threads=False, column_names=["word", "frequency", "tag"]),
        csv.ParseOptions(delimiter=" ", quote_char=False),
        csv.ConvertOptions(
            column_types={"word": pa.string(), "frequency": pa.int64()},
            include_columns=["word", "frequency"],
        ),
    )
    return table.append_column("beginning", pc.utf8_slice_codeunits(table["word"], 0, 2))


def _empty_jieba() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources is deprecated
        import jieba
    tokenizer = jieba.Tokenizer()
    tokenizer.initialized = True
    return tokenizer


def user_lines(data: bytes, name: str) -> bytes:
    """Return the lines of a user dictionary, checked: UTF-8, without comments and byte order marks.

    Left out, and named in the log, are words with blanks in them (`Edu Trust`): jieba reads them, and finds
    none in a text, as a blank ends a word there.

    Raises:
        DataError: a line is not `word`, `word frequency`, `word tag` or `word frequency tag`. One with
            control characters comes from a file that is none of text.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: a user dictionary must be UTF-8: {error}") from error
    kept, with_blanks = list[str](), list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or _is_comment(line):
            continue
        if len(line) <= _MAX_WORD + _MAX_REST and (read := _JIEBAS_LINE.fullmatch(line)) and " " in read[1]:
            with_blanks.append(f"line {number}: {brief(line)}")
            continue
        word, _, rest = line.partition(" ")
        if len(word) > _MAX_WORD:  # jieba keeps every beginning of a word
            raise DataError(
                f"{name}:{number}: a word of {len(word)} characters, {word[:20]!r}...; expected one word of "
                f"at most {_MAX_WORD} characters per line"
            )
        if len(rest) > _MAX_REST or not _USER_LINE.fullmatch(line):
            raise DataError(
                f"{name}:{number}: expected `word [frequency] [tag]`, one space between them, the frequency "
                f"of at most 15 digits, the tag in small Latin letters, no control characters; found "
                f"{brief(line)}"
            )
        kept.append(line)
    if with_blanks:
        log.warning(
            "%s: %s with blanks left out, as neither jieba nor this tokenizer finds them in a text (%s)",
            name,
            plural(len(with_blanks), "word"),
            "; ".join(with_blanks[:5]),
        )
    return "".join(line + "\n" for line in kept).encode()


def _is_comment(line: str) -> bool:
    """Return whether a line of a user dictionary is a remark (`# places`), and no word such as `#1`."""
    return line.startswith("#") and not (line.split(" ")[0].strip("#") and _USER_LINE.fullmatch(line))


def with_user_words(lexicon: Lexicon, user: bytes) -> Lexicon:
    """Return the lexicon after jieba has loaded user dictionaries; a frequency of 0 removes a word.

    Args:
        user: as returned by `user_lines`.
    """
    if not user:
        return lexicon
    theirs, frequency = jieba_tokenizer(user), dict(lexicon.frequency)
    words = dict.fromkeys(line.split(" ")[0] for line in user.decode("utf-8").splitlines())
    found = [word for word in words if _REACHABLE.fullmatch(word)]
    if len(found) < len(words):
        lost = [word for word in words if not _REACHABLE.fullmatch(word)]
        log.warning(
            "%d of %d words of the user dictionary contain characters that end a word in jieba; neither "
            "jieba nor this tokenizer finds them: %s",
            len(lost),
            len(words),
            " ".join(lost[:5]),
        )
    frequency |= {word: theirs.FREQ[word] for word in found}
    return Lexicon(frequency, theirs.total, lexicon.sha256, user, frozenset(found))
