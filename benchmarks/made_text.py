"""Text of any size to measure with, from a seed: each character follows the one before as in bundled text.

    python benchmarks/made_text.py texts.jsonl 1000      # 1 GB in texts of 2.7 KB

Every 25th text is a near copy of the one before it, with four characters more in its middle. So `curate` has
to find 1/25 of the texts, less those that its filters drop first, and no other copies.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zstandard

_BUNDLED = Path(__file__).parents[1] / "corpus" / "small.jsonl.zst"
_AT_ONCE = 4000
_LINE = 150
_COPY_EACH, _FIRST_COPY, _INSERTED = 25, 3, "也乎者哉"


def texts(characters: int, seed: int = 7) -> Iterator[str]:
    """Texts of so many characters without end; each of some thousand chains takes one step at a time."""
    with zstandard.open(_BUNDLED, "rt", encoding="utf-8") as file:
        text = "".join(json.loads(line)["text"].replace("\n", "") for line in file)
    letters, ids = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    order = np.argsort(ids[:-1], kind="stable")
    following = ids[1:][order]
    start = np.searchsorted(ids[:-1][order], np.arange(len(letters) + 1))
    count = np.maximum(np.diff(start), 1)
    random = np.random.default_rng(seed)
    places: npt.NDArray[np.int64] = np.empty((characters, _AT_ONCE), np.int64)
    while True:
        last = following[random.integers(0, len(following), _AT_ONCE)]
        for place in range(characters):
            places[place] = last
            step = start[last] + (random.random(_AT_ONCE) * count[last]).astype(np.int64)
            last = following[np.minimum(step, len(following) - 1)]
        made = [row.tobytes().decode("utf-32-le") for row in letters[places.T]]
        half = characters // 2
        for number, one in enumerate(made):
            if number % _COPY_EACH == _FIRST_COPY:
                before = made[number - 1]
                one = before[:half] + _INSERTED + before[half:]
            yield "\n".join(one[begin : begin + _LINE] for begin in range(0, len(one), _LINE))


def write(path: Path, size: int, characters: int = 900) -> int:
    """Write texts as JSON Lines until the file has `size` bytes; returns how many there are."""
    written = 0
    with path.open("wb") as file:
        for number, text in enumerate(texts(characters)):
            record = {"text": text, "genre": "文", "title": f"t{number}", "author": "", "source": "g"}
            written += file.write(
                json.dumps(record | {"license": "CC0"}, ensure_ascii=False).encode() + b"\n"
            )
            if written >= size:
                return number + 1
    raise AssertionError("texts have no end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("megabytes", type=float)
    given = parser.parse_args()
    print(f"{write(given.path, int(given.megabytes * 1e6)):,} texts")
