"""Raw files in a bucket, on a real S3 server."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from servers.s3 import S3Server

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.curate.sources.raw_files import Listing, list_files, open_file

DOCUMENTS = Path(__file__).parents[3] / "data" / "documents.jsonl"


@pytest.fixture
def bucket(s3_server: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "5")
    return s3_place


def put(server: S3Server, place: str, **files: bytes) -> None:
    bucket, _, prefix = place.partition("/")
    for name, data in files.items():
        key = f"{prefix}/{name}" if prefix else name
        server.client().put_object(
            bucket_name=bucket, object_name=key, data=io.BytesIO(data), length=len(data)
        )


def names(entry: str) -> list[str]:
    return [file.name for file in list_files(entry)]


def test_keys_prefixes_and_globs_name_what_a_person_expects(s3_server: S3Server, bucket: str) -> None:
    keys = ["a/唐 诗.jsonl", "a/b/宋词#1?.txt", "a/b/c/x.parquet", "ab/y.txt", "a/.hidden/z.txt", "a/folder/"]
    put(s3_server, bucket, **dict.fromkeys(keys, b"x"))
    uri = f"s3://{bucket}"
    assert names(f"{uri}/a") == names(f"{uri}/a/") == ["唐 诗.jsonl", "宋词#1?.txt", "x.parquet"]
    assert names(f"{uri}/ab/y.txt") == ["y.txt"]
    assert names(f"{uri}/a/*.jsonl") == ["唐 诗.jsonl"]
    assert names(f"{uri}/a/**/*.txt") == ["宋词#1?.txt"]
    assert names(f"{uri}/a*/[xy].*") == ["y.txt"]
    for file in list_files(f"{uri}/a"):
        with open_file(file.uri) as stream:
            assert stream.read() == b"x"
    with pytest.raises(DataError, match="no such object or prefix"):
        list_files(f"{uri}/nothing")
    with pytest.raises(DataError, match="matches nothing"):
        list_files(f"{uri}/a/*.nothing")
    with pytest.raises(UsageError, match="no such bucket"):
        list_files("s3://yanmo-no-such-bucket-1/a")


def test_a_large_object_is_streamed_sought_and_its_change_is_noticed(
    s3_server: S3Server, bucket: str
) -> None:
    data = bytes(range(256)) * 70_000
    put(s3_server, bucket, big=data)
    with open_file(f"s3://{bucket}/big") as stream:
        assert stream.read() == data
        stream.seek(-300, io.SEEK_END)
        assert stream.read(100) == data[-300:-200]
        stream.seek(0)
        assert stream.read(1) == b"\x00"
        put(s3_server, bucket, big=data[::-1])
        with pytest.raises(StorageError, match="changed while it was read"):
            stream.read()


def test_curate_reads_a_bucket_like_a_folder(
    s3_server: S3Server, bucket: str, tmp_path: Path, curate: Callable[..., Any]
) -> None:
    data = gzip.compress(DOCUMENTS.read_bytes(), mtime=0)
    put(s3_server, bucket, **{"raw/poems.jsonl.gz": data})
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/poems.jsonl.gz").write_bytes(data)
    far = curate(f"s3://{bucket}/raw", store="far").output()
    near = curate(tmp_path / "raw", store="near").output()
    assert far.content_digest == near.content_digest and far.manifest.key == near.manifest.key


def test_a_marker_hides_no_folder_and_every_key_is_read_or_named(s3_server: S3Server, bucket: str) -> None:
    keys = {
        "诗词/": b"",
        "诗词/a.txt": b"x",
        "曲": b"",
        "曲/b c.txt": b"x",
        "诗词/.git/z": b"",
        "诗词/d/": b"x",
    }
    put(s3_server, bucket, **keys)
    left: list[tuple[str, str]] = []
    how = Listing(leave_out=lambda uri, why: left.append((unquote(uri.partition("诗词/")[2] or uri), why)))
    for entry in ("诗词", "诗词/"):
        assert [file.name for file in list_files(f"s3://{bucket}/{entry}", how)] == ["a.txt"]
    assert names(f"s3://{bucket}/曲") == names(f"s3://{bucket}/曲/") == ["b c.txt"]
    assert {(uri.rpartition("诗词/")[2], why) for uri, why in left} == {
        (".git", "hidden"),
        ("d/", "its key ends as a folder's"),
    }


def test_a_name_that_no_bucket_can_have_says_so() -> None:
    with pytest.raises(UsageError, match=r"a bucket's name has 3 to 63 of .*'ab'"):
        list_files("s3://ab/x.txt")
