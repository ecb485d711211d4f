from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import DataError, UsageError
from yanmo.curate.sources.entries import read_entries
from yanmo.curate.sources.listing import (
    MANY_SMALL,
    SMALL_BYTES,
    Source,
    bundles,
    digest_files,
    find_files,
    sources_input,
)
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import file_sha256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.jsonl",
        "a.txt.gz",
        "sub/c.JSONL.zst",
        "sub/d.parquet",
        "e.docx",
        ".hidden/f.txt",
        "g h.txt",
    ):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "in"


def names(sources: str) -> list[str]:
    return [source.name.rpartition("/")[2] for source in find_files(sources)]


def test_a_folder_gives_all_its_text_files(folder: Path) -> None:
    assert names(str(folder)) == ["a.txt.gz", "b.jsonl", "g h.txt", "c.JSONL.zst", "d.parquet"]


def test_entries_may_be_files_folders_and_globs_in_any_order_and_more_than_once(folder: Path) -> None:
    entries = [f"{folder}/*.jsonl", f"{folder}/sub", f"file://{folder}/a.txt.gz", f"{folder}/b.jsonl"]
    expected = ["a.txt.gz", "b.jsonl", "c.JSONL.zst", "d.parquet"]
    assert names(",".join(entries)) == names(" ".join(reversed(entries))) == expected


def test_one_file_with_two_settings_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"names .*b.jsonl twice"):
        find_files(f"{folder}/b.jsonl;genre=shi {folder}/b.jsonl;genre=ci")


def test_a_single_path_may_hold_spaces(folder: Path) -> None:
    assert names(f"{folder}/g h.txt") == ["g h.txt"]
    (found,) = find_files(f"{folder}/g h.txt;layout=line;genre=诗")
    assert (found.name, dict(found.settings.values)) == ("g h.txt", {"layout": "line", "genre": "诗"})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nothing.jsonl", "no such file or folder"),
        ("e.docx", "its name has no known extension; expected .jsonl, .json, .csv, .tsv, .txt, .md"),
        ("*.xml", "matches nothing; look at the path; expected .jsonl"),
        (".hidden/../empty", "no files there that can be read"),
    ],
)
def test_an_entry_that_names_nothing_readable_is_refused(folder: Path, entry: str, message: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        find_files(f"{folder}/{entry}")


def test_a_scheme_without_a_reader_is_refused() -> None:
    with pytest.raises(UsageError, match="gs://bucket/x"):
        find_files("gs://bucket/x")


def test_an_unchanged_file_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    store, path = FileStore(tmp_path / "store"), folder / "b.jsonl"
    (first,) = digest_files(store, find_files(str(path)))
    assert first.sha256 == file_sha256(path)
    stat = path.stat()
    path.write_bytes(b"x" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (
        digest_files(store, find_files(str(path)))[0].sha256 == first.sha256
    )  # from memory: nothing was read
    assert digest_files(store, find_files(str(path)), again=True)[0].sha256 == file_sha256(path)  # --force
    assert digest_files(store, find_files(str(path)))[0].sha256 == file_sha256(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert digest_files(store, find_files(str(path)))[0].sha256 == file_sha256(path) != first.sha256


def test_a_damaged_memory_is_mended(folder: Path, tmp_path: Path) -> None:
    store, path = FileStore(tmp_path / "store"), folder / "b.jsonl"
    digest_files(store, find_files(str(path)))
    (memory,) = (tmp_path / "store" / "sources").iterdir()
    memory.write_bytes(b"{")
    assert digest_files(store, find_files(str(path)))[0].sha256 == file_sha256(path)
    assert file_sha256(path) in memory.read_text()


def test_the_input_of_the_key_depends_on_names_and_bytes_alone(folder: Path, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    one = digest_files(store, find_files(str(folder)))
    other = tmp_path / "moved"
    folder.rename(other)
    two = digest_files(store, reversed(find_files(str(other))))
    assert sources_input(one)["content_digest"] == sources_input(two)["content_digest"]
    (other / "b.jsonl").write_text("changed")
    three = digest_files(store, find_files(str(other)))
    assert sources_input(three)["content_digest"] != sources_input(one)["content_digest"]


def test_all_that_is_not_read_is_named_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (".git/config", "a.pdf", "b.PDF", "LICENSE", "sub/.env"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "gone.txt").symlink_to(folder / "nothing.txt")
    os.mkfifo(folder / "pipe.txt")
    (folder / "again").symlink_to(folder / "sub")
    assert names(str(folder)) == ["a.txt.gz", "b.jsonl", "g h.txt", "c.JSONL.zst", "d.parquet"]
    said = caplog.text.replace(f"{folder}/", "")
    assert "left out, hidden: .git, .hidden, sub/.env" in said
    assert "left out, a link to nothing: gone.txt" in said and "left out, no file: pipe.txt" in said
    assert "left out, a link to another folder of the same place: again" in said
    assert re.search(
        r"4 files of other kinds left out: .pdf 2, .*without an ending 1.*; expected .jsonl", said
    )


@pytest.mark.parametrize("entry", ["in", "in/*", "in/**/*"])
def test_a_link_that_leads_outside_is_refused_unless_asked_for(tmp_path: Path, entry: str) -> None:
    for name in ("in/a.txt", "out/secret.txt", "in/sub/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "in/sub/near.txt").symlink_to("../a.txt")
    assert set(names(f"{tmp_path}/in")) == {"a.txt", "b.txt"}
    (tmp_path / "in/notes.txt").symlink_to("../out/secret.txt")
    with pytest.raises(DataError, match=r"in/notes.txt: leads to .*out/secret.txt, outside .*--follow-links"):
        find_files(f"{tmp_path}/{entry}")
    found = find_files(f"{tmp_path}/{entry}", follow_links=True)
    assert "notes.txt" in {one.name for one in found}
    assert names(f"{tmp_path}/in/notes.txt") == ["notes.txt"], "whoever names a link means it"


def test_links_between_folders_end_where_they_began(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    (tmp_path / "in/away").symlink_to(tmp_path / "out")
    (tmp_path / "out/back").symlink_to(tmp_path / "in")
    (tmp_path / "out/self").symlink_to(tmp_path / "out")
    with pytest.raises(DataError, match="--follow-links"):
        find_files(f"{tmp_path}/in")
    assert [f.name for f in find_files(f"{tmp_path}/in", follow_links=True)] == ["away/out.txt", "in.txt"]


def test_names_in_gb18030_come_out_right(tmp_path: Path) -> None:
    folder = tmp_path / "文集"
    folder.mkdir()
    for name in ("唐诗.txt".encode("gb18030"), "宋词.txt".encode(), b"\xff\xff.txt"):
        (folder / os.fsdecode(name)).write_text("天地")
    found = digest_files(FileStore(tmp_path / "store"), find_files(str(folder)))
    assert {one.name for one in found} == {"唐诗.txt", "宋词.txt", "??.txt"}
    assert f"{folder}/唐诗.txt" in {one.shown for one in found}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "b.jsonl").chmod(0)
    with pytest.raises(DataError, match=r"b\.jsonl: cannot be read: Permission denied"):
        digest_files(FileStore(tmp_path / "store"), find_files(str(folder / "b.jsonl")))


def test_an_empty_file_beside_others_is_left_out_with_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is still being uploaded does not end a night."""
    store = FileStore(tmp_path / "store")
    before = sources_input(digest_files(store, find_files(str(folder))))
    (folder / "begun.jsonl").write_bytes(b"")
    assert sources_input(digest_files(store, find_files(str(folder)))) == before
    assert re.search(r"left out, as it is empty; it is taken once it has text: \S*/begun\.jsonl", caplog.text)
    for file in filter(Path.is_file, folder.rglob("*")):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"in/\S+: is empty, as all of --sources"):
        digest_files(store, find_files(str(folder)))


def test_a_list_of_sources_may_be_longer_than_any_file_name() -> None:
    """`stat` refuses a name of 256 characters, which a list without folders soon has."""
    names = [f"part-{number:04}.jsonl" for number in range(400)]
    assert [entry.place for entry in read_entries(",".join(names))] == names


@settings(deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 200, SMALL_BYTES - 1, SMALL_BYTES, 1 << 24]), max_size=400),
    seed=st.integers(0, 5),
)
def test_bundles_hold_every_file_once_in_order_and_large_ones_alone(sizes: list[int], seed: int) -> None:
    files = [
        Source(
            uri=f"file:///{i}.txt",
            name=f"{i}.txt",
            form="txt",
            compression="",
            bytes=size,
            version="1",
            sha256=hashlib.sha256(f"{seed} {i}".encode()).hexdigest(),
        )
        for i, size in enumerate(sizes)
    ]
    found = bundles(files)
    assert [one for bundle in found for one in bundle] == files and all(found)
    assert all(len(bundle) == 1 or all(one.bytes < SMALL_BYTES for one in bundle) for bundle in found)
    if len([size for size in sizes if size < SMALL_BYTES]) <= MANY_SMALL:
        assert len(found) == len(files)
