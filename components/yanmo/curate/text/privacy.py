"""Personal data in users' texts: telephone numbers, resident identity numbers, mail addresses.

They are masked before normalization, which does not preserve the white space and ASCII dots in them. Program
code, URLs and reserved domains (RFC 2606, 6761) hold none, and a text that is mostly code or documentation is
left alone.
A resident identity number must have the right check digit (GB 11643-1999, ISO 7064 MOD 11-2) and a possible
birthday; of random numbers of 18 digits, one in 370 has. Classical text has no such data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from yanmo.chinese.code_spans import has_much_code, is_in, protected_spans

KINDS = ("phone", "id", "mail")
"""What `--mask-personal` takes."""

_ID = re.compile(r"(?<![0-9A-Za-z.])[1-9][0-9]{16}[0-9Xx](?![0-9A-Za-z])")
_MOBILE = re.compile(
    r"(?<![0-9A-Za-z._/#])(?:(?:\+|00)86[- ]?)?1[3-9][0-9](?:[- ]?[0-9]{4}){2}(?![0-9A-Za-z_]|\.[0-9])"
)
_LANDLINE = re.compile(r"(?<![0-9-])(?:(?:\+|00)86[- ]?)?\(?0[1-9][0-9]{1,2}\)?[- ][1-9][0-9]{6,7}(?![0-9-])")
# Lengths are bounded (RFC 5321: 64 and 255), and an address starts where no letter stands before it.
_MAIL = re.compile(
    r"(?<![A-Za-z0-9_%+-])[A-Za-z0-9_%+-][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61})\.){1,4}[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
_NUMBER = re.compile("[0-9]{4}[- ]?[0-9]{3}")
"""What every number that is masked holds, and a year does not."""
_FULL_WIDTH = {0xFF01 + i: 0x21 + i for i in range(94)}
_HAS_FULL_WIDTH = re.compile("[０-９＠]")

_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECK_DIGITS = "10X98765432"


def is_resident_id(number: str) -> bool:
    """Return whether 18 characters are an identity number: a possible birthday, the right check digit."""
    try:
        born = date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    total = sum(int(digit) * weight for digit, weight in zip(number[:17], _WEIGHTS, strict=True))
    return born.year >= 1850 and number[17].upper() == _CHECK_DIGITS[total % 11]


_RESERVED = re.compile(
    r"@(?:.*\.)?(?:example(?:\.(?:com|net|org))?|test|invalid|localhost|local|internal|lan|service|onion)\Z|^git@",
    re.IGNORECASE,
)
"""Domains that are nobody's, systemd's units, and the user of git's addresses."""


def _is_any(found: str) -> bool:
    return True


def _is_mail(found: str) -> bool:
    return _RESERVED.search(found) is None


_RULES: tuple[tuple[str, re.Pattern[str], Callable[[str], bool], str], ...] = (
    ("id", _ID, is_resident_id, "（身份证号）"),
    ("phone", _MOBILE, _is_any, "（电话）"),
    ("phone", _LANDLINE, _is_any, "（电话）"),
    ("mail", _MAIL, _is_mail, "（邮箱）"),
)


def mask(text: str, kinds: tuple[str, ...], *, code: bool = False) -> tuple[str, tuple[str, ...]]:
    """`text` with personal data replaced by what kind it was, in brackets.

    Full-width digits and letters count as their ASCII forms.

    Args:
        kinds: some of KINDS.
        code: whether the text may hold program code.

    Returns:
        the text and the kinds that were found, in the order of KINDS.
    """
    # The searched text has the same length as the text, so that positions agree.
    searched = text.translate(_FULL_WIDTH) if _HAS_FULL_WIDTH.search(text) else text
    if not kinds or not ("@" in searched or _NUMBER.search(searched)):
        return text, ()
    if code and has_much_code(text):
        return text, ()
    kept = protected_spans(text) if code else []
    spans: list[tuple[int, int, str, str]] = []
    for kind, pattern, is_valid, mark in _RULES:
        if kind in kinds:
            found = (m for m in pattern.finditer(searched) if is_valid(m[0]) and not is_in(m.start(), kept))
            spans += [(*m.span(), kind, mark) for m in found]
    pieces, end = [], 0
    for start, stop, _, mark in sorted(spans):
        if start >= end:  # a number inside an address that is masked already
            brackets = text[max(0, start - 1) : start] + text[stop : stop + 1]
            pieces += [text[end:start], mark[1:-1] if brackets in ("()", "（）") else mark]
            end = stop
    masked = {kind for _, _, kind, _ in spans}
    return "".join((*pieces, text[end:])), tuple(k for k in KINDS if k in masked)
