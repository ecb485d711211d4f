"""Prompts of a file are all read, or the file is refused by the line that is wrong."""

import json

import pytest

from yanmo.common.errors import DataError, UsageError
from yanmo.formats.chat_tokens import Turn
from yanmo.tools.generate.prompts import clean, read_prompts


def of(tmp_path, text, name="prompts.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_prompts(path)


def test_plain_lines_are_prompts_and_blank_ones_none(tmp_path):
    found = of(tmp_path, "春眠\r\n\n  \n不觉晓\n")
    assert [p.text for p in found] == ["春眠", "不觉晓"]
    assert found[1].where.endswith(":4") and found[1].record == {"prompt": "不觉晓"}


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_records_have_a_text_or_messages_and_keep_their_other_fields(tmp_path, name):
    messages = [{"role": "system", "content": "短"}, {"role": "user", "content": "明\r\n月"}]
    records = [{"prompt": "", "id": 3}, {"messages": messages, "seed": 7}]
    first, second = of(tmp_path, "\n".join(map(json.dumps, records)), name)
    assert (first.text, first.turns, first.seed, first.record) == ("", (), None, records[0])
    assert second.turns == (Turn("system", "短"), Turn("user", "明\n月")) and second.seed == 7


SAID = [{"role": "user", "content": "问"}, {"role": "assistant", "content": "答"}]
WRONG = {
    "no JSON": ("{", "a JSON object in one line"),
    "nested": ('{"a":' + "[" * 100_000, "nested too deeply"),
    "an array": ('[{"prompt": "a"}]', "found an array"),
    "neither": ({"text": "a"}, "either `prompt` or `messages`, found text"),
    "both": ({"prompt": "a", "messages": SAID[:1]}, "either `prompt` or `messages`"),
    "a number": ({"prompt": 3}, "expected a text, found a number"),
    "control": ({"prompt": "a\x1b[2J"}, "U+001B at character 2"),
    "NUL": ({"prompt": "\0"}, "U+0000 at character 1"),
    "half": ({"prompt": "a\ud800"}, "character 2 is half of one"),
    "seed": ({"prompt": "a", "seed": -1}, "seed -1"),
    "seed of a kind": ({"prompt": "a", "seed": True}, "seed True"),
    "no turns": ({"messages": []}, "end with the user's"),
    "an answer last": ({"messages": SAID}, "end with the user's"),
    "an empty turn": ({"messages": [{"role": "user", "content": " \n"}]}, "message 1"),
    "another role": ({"messages": [{"role": "tool", "content": "a"}, *SAID[:1]]}, "message 1"),
    "system late": ({"messages": [*SAID, {"role": "system", "content": "a"}, SAID[0]]}, "only be the first"),
    "no turn": ({"messages": ["问"]}, "message 1"),
    "control in a turn": ({"messages": [{"role": "user", "content": "\x07"}]}, "message 1: holds"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_line_that_is_wrong_is_named(tmp_path, case):
    line, message = WRONG[case]
    line = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(DataError) as error:
        of(tmp_path, '{"prompt": "a"}\n' + line, "a.jsonl")
    assert "a.jsonl:2" in str(error.value) and message in str(error.value)


@pytest.mark.parametrize("text", [b"", b"\n \n", "春".encode("gb18030"), b"\xff\xfea\0"])
def test_a_file_without_prompts_or_of_another_encoding_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="expected"):
        of(tmp_path, text)


def test_a_file_that_is_not_there_is_a_wrong_option(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_prompts(tmp_path / "none")


def test_tabs_and_line_breaks_are_text():
    assert clean("a\tb\r\nc\n", "x") == "a\tb\nc\n"
