"""Names of genres for places that hold ASCII only."""

import re

from hypothesis import given
from hypothesis import strategies as st

from yanmo.formats.genre_names import GENRE_ALIASES, RESERVED, ascii_name

_GENRES = st.one_of(
    st.text(min_size=1, max_size=100),
    st.sampled_from([*GENRE_ALIASES, *GENRE_ALIASES.values(), *RESERVED, "u8bd7", "u8bd7_u8bcd", "poem_2"]),
    st.lists(st.sampled_from(["u", "8", "b", "d", "7", "_", "-", "诗", "A"]), min_size=1).map("".join),
)


@given(_GENRES, _GENRES)
def test_two_genres_never_have_one_name(one: str, other: str) -> None:
    names = {ascii_name(one), ascii_name(other)}
    assert len(names) == len({one, other})
    assert all(re.fullmatch("[a-z0-9_-]{1,60}", name) for name in names)
    assert "mean" not in names, "the mean over genres has this name"


def test_a_name_does_not_depend_on_the_other_genres() -> None:
    assert [ascii_name(genre) for genre in ("诗", "小品", "text")] == ["shi", "u5c0f_u54c1", "text"]
