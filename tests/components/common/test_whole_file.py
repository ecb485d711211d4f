"""Files that a person asked for, written where there may be no room for them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
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


def test_links_modes_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "pipe"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink() and real.read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640

    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_whole(pipe, "through")
    reader.join()
    assert read == ["through"] and pipe.is_fifo()


def test_a_link_to_itself_is_left_and_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(loop)
    with pytest.raises(OSError, match=re.escape(str(loop))) as raised:
        write_whole(loop, "new")
    assert raised.value.errno == errno.ELOOP and loop.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop", "other"]


def test_a_file_in_a_folder_that_may_not_be_changed_is_written_as_it_is(tmp_path: Path) -> None:
    rights = "-dac_override,-dac_read_search,-fowner"
    as_user = ["setpriv", "--bounding-set", rights, "--inh-caps", rights] if os.geteuid() == 0 else []
    if as_user and shutil.which("setpriv") is None:
        pytest.skip("root passes over modes; no setpriv here")
    path = tmp_path / "table.csv"
    path.write_text("old", encoding="utf-8")
    tmp_path.chmod(0o555)
    program = (
        "import sys; from pathlib import Path; from yanmo.common.whole_file import write_whole\n"
        "write_whole(Path(sys.argv[1]), 'new')"
    )
    try:
        subprocess.run([*as_user, sys.executable, "-c", program, str(path)], check=True)
    finally:
        tmp_path.chmod(0o755)
    assert path.read_text(encoding="utf-8") == "new"
