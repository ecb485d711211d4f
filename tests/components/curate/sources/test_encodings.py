from __future__ import annotations

import opencc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.curate.sources.encodings import as_utf8, codec_of, decode_record, detect, file_encoding

ENCODINGS = ("utf-8", "gb18030", "big5", "utf-16-le", "utf-16-be")


@pytest.fixture(scope="module")
def to_traditional() -> opencc.OpenCC:
    return opencc.OpenCC("s2t")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [60, 300, 5000])
def test_the_encoding_of_real_text_is_detected(
    lines: list[dict[str, str]], to_traditional: opencc.OpenCC, encoding: str, size: int
) -> None:
    text = "\n".join(to_traditional.convert(line["text"]) for line in lines)
    for start in range(0, 12_000, 1500):
        sample = text[start : start + size].encode(codec_of(encoding), "ignore")
        assert detect(sample).encoding == encoding, text[start : start + 20]
        assert encoding != "utf-8" or detect(sample[:-1]).encoding == encoding  # a character may be cut


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_decides(mark: str) -> None:
    found = detect("plain ASCII".encode(mark))
    assert found.encoding == {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}[mark]


def test_plain_ascii_is_utf_8_and_in_utf_16_it_is_not() -> None:
    assert detect(b'{"text": "\\u5929"}').encoding == "utf-8"
    assert detect("天地 abc".encode("utf-16-le") * 20).encoding == "utf-16-le"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, "a PNG image"),
        (b"\x1f\x8b\x08\0" + bytes(range(256)) * 20, r"gzip \(.gz\)"),
        (b"PAR1" + bytes(range(256)) * 20, "Parquet"),
        (bytes(range(256)) * 40, "its encoding cannot be detected"),
        (b"\0" * 5000, "its encoding cannot be detected"),
    ],
)
def test_a_binary_file_is_refused_by_name_and_kind(data: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"some.txt: .*{what}"):
        file_encoding("some.txt", data, "auto")


@pytest.mark.parametrize("encoding", ["utf-32", "utf-32-le", "utf-32-be"])
@given(
    text=st.text(
        alphabet=st.characters(min_codepoint=1, max_codepoint=0x3FFFF, exclude_categories=("Cs",)), min_size=1
    )
)
def test_utf_32_is_named_and_how_to_convert_it(encoding: str, text: str) -> None:
    with pytest.raises(DataError, match=r"some.txt: is in UTF-32; .*iconv -f UTF-32 -t UTF-8"):
        file_encoding("some.txt", text.encode(encoding), "auto")


@pytest.mark.parametrize("encoding", ENCODINGS[1:])
@given(text=st.text(alphabet="天地玄黄，。\n\r\tab 1", min_size=1))
def test_no_other_text_is_taken_for_utf_32(encoding: str, text: str) -> None:
    try:
        file_encoding("some.txt", text.encode(codec_of(encoding)), "auto")
    except DataError as error:  # too short to be sure of
        assert "UTF-32" not in str(error)


def test_a_named_encoding_is_not_questioned() -> None:
    assert file_encoding("x", b"\xb4\xb2", "gb18030").encoding == "gb18030"
    assert file_encoding("x", "天".encode("utf-16"), "utf-16").encoding == "utf-16-le"
    assert file_encoding("x", b"\xfe\xff\x59\x29", "utf-16").encoding == "utf-16-be"


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_any_chunks_become_the_text_in_utf_8(encoding: str, size: int) -> None:
    text = "\ufeff天地玄黃，\n宇宙洪荒𠮷。" if encoding != "big5" else "天地玄黃，\n宇宙洪荒。"
    data = text.encode(codec_of(encoding))
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    assert b"".join(as_utf8(chunks, encoding)).decode() == text.removeprefix("\ufeff")


def test_a_line_in_another_encoding_is_read_only_where_there_is_no_doubt() -> None:
    verse = "床前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。"
    assert decode_record(verse.encode("big5")) == (verse, "big5")
    assert decode_record(verse.encode("gb18030")) == (verse, "gb18030")
    assert decode_record(verse.encode()) == (verse, "utf-8")
    for doubtful in (b"caf\xe9", b"\xff\xfe\xfd" * 9, "天".encode()[:2]):
        with pytest.raises(UnicodeDecodeError):
            decode_record(doubtful)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_a_byte_order_mark_is_no_text_wherever_it_is(encoding: str, size: int) -> None:
    data = "\ufeff天地\n\ufeff\ufeff玄黄\ufeff".encode(encoding)
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    assert b"".join(as_utf8(chunks, encoding)).decode() == "天地\n玄黄"
