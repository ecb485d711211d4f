"""Files that a person asked for, written where there may be no room for them."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import no_file_above

from yanmo.common.whole_file import write_whole


@given(
    before=st.none() | st.text(max_size=50).map(str.encode),
    text=st.text("a诗\r\n", max_size=3000),
    room=st.integers(0, 4000),
)
def test_a_file_holds_all_of_it_or_what_it_held(before: bytes | None, text: str, room: int) -> None:
    with TemporaryDirectory() as folder:
        path, new = Path(folder) / "table.csv", text.encode()
        if before is not None:
            path.write_bytes(before)
        fails = len(new) > room
        try:
            with no_file_above(room):
                write_whole(path, text)
        except OSError as error:
            assert fails and error.filename == str(path)
        else:
            assert not fails
        now = path.read_bytes() if path.exists() else None
        assert now == (before if fails else new)
        assert [p.name for p in Path(folder).iterdir()] == ([] if now is None else ["table.csv"])


def test_a_device_that_is_full_is_named() -> None:
    with pytest.raises(OSError) as raised:
        write_whole(Path("/dev/full"), "x")
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == "/dev/full"


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "pipe"
    real.write_text("old", encoding="utf-8")
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink() and real.read_text(encoding="utf-8") == "new"

    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_whole(pipe, "through")
    reader.join()
    assert read == ["through"] and pipe.is_fifo()
