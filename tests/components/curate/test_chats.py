"""Chats of every usual layout become documents with turns, normalized turn by turn."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from yanmo.curate.config import CurateOptions
from yanmo.curate.sources.chat_layouts import Turn, layout_of_chat, turns_of
from yanmo.curate.sources.parsing import RawDocument
from yanmo.curate.text.cleaning import clean_and_normalize
from yanmo.curate.text.normalize import normalize
from yanmo.curate.text.record_rules import record_rules

ASKED, SAID = "請以《立冬》為題,寫一首詩。", "人逐年華老,寒隨雨意增。\n山頭望樵火,水底見漁燈。"
MESSAGES = {"messages": [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]}
LAYOUTS = {
    "openai": MESSAGES,
    "openai parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": ASKED}]},
            {"role": "assistant", "content": SAID},
        ]
    },
    "sharegpt": {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SAID}]},
    "alpaca": {"instruction": ASKED, "input": "", "output": SAID},
    "roles in any case": {
        "messages": [{"role": "Human", "content": ASKED}, {"role": "ASSISTANT", "content": SAID}]
    },
    "an empty system message": {
        "messages": [{"role": "system", "content": None}, *MESSAGES["messages"]],
        "system": " ",
    },
    "messages in JSON": {"messages": json.dumps(MESSAGES["messages"])},
    "strings among the parts": {"messages": [{"role": "user", "content": [ASKED]}, MESSAGES["messages"][1]]},
    "prompt/completion": {"prompt": ASKED, "completion": SAID},
    "prompt/completion of messages": {
        "prompt": MESSAGES["messages"][:1],
        "completion": MESSAGES["messages"][1:],
    },
    "prompt/response": {"prompt": ASKED, "response": SAID},
    "query/response": {"query": ASKED, "response": SAID, "system": ""},
    "question/answer": {"id": 5, "question": ASKED, "answer": SAID},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_turns(layout):
    assert turns_of(LAYOUTS[layout]) == [Turn("user", ASKED, False), Turn("assistant", SAID, True)]


def test_other_fields_are_a_chat_where_they_are_named():
    record = {"问": ASKED, "答": SAID}
    assert turns_of(record) is None
    assert turns_of(record, ("问", "答")) == turns_of(MESSAGES)
    assert layout_of_chat(record, ("问", "答")) == "问/答"
    assert layout_of_chat({**record, **MESSAGES}, ("问", "答")) == "messages"


def test_what_came_before_is_no_answer_of_a_completion():
    said = MESSAGES["messages"][1]
    found = turns_of({"prompt": [*MESSAGES["messages"], MESSAGES["messages"][0]], "completion": [said]})
    assert [turn.is_answer for turn in found] == [False, False, False, True]


def test_system_history_input_and_weights_are_understood():
    alpaca = {"instruction": "续写", "input": "白日依山尽", "output": "黄河入海流"}
    found = turns_of({**alpaca, "system": "你是诗人", "history": [["你好", "好"]]})
    assert found == [
        Turn("system", "你是诗人", False),
        Turn("user", "你好", False),
        Turn("assistant", "好", True),
        Turn("user", "续写\n白日依山尽", False),
        Turn("assistant", "黄河入海流", True),
    ]
    asked = {"role": "user", "content": "零", "weight": 1}
    said = [{"role": "assistant", "content": "一", "weight": 0}, {"role": "assistant", "content": "二"}]
    assert [turn.is_answer for turn in turns_of({"messages": [asked, *said]})] == [False, False, True]
    greeting = {"role": "assistant", "content": "你好"}
    assert [turn.is_answer for turn in turns_of({"messages": [greeting, asked, *said]})] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"messages": "你好"}, "messages are a text, expected a list, or one in JSON"),
        ({"messages": '{"role": "user"}'}, "messages are an object, expected a list"),
        ({"prompt": ASKED, "completion": [{"role": "assistant", "content": SAID}]}, "expected two texts"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "turn 1: role 'tool': expected system, user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content of user is not text"),
        ({"messages": [{"role": "user", "content": " "}]}, "turn 1: user says nothing"),
        ({"messages": ["你好"]}, "turn 1: a text, expected role and content"),
        ({"messages": []}, "a chat without an answer"),
        ({"messages": [MESSAGES["messages"][1], {"role": "system", "content": "诗"}]}, "not the first"),
        ({"messages": [MESSAGES["messages"][1]]}, "a chat without a question"),
        ({"messages": [{**m, "weight": 0.5} for m in MESSAGES["messages"]]}, "expected 0 or 1"),
        ({**LAYOUTS["alpaca"], "history": [["你好"]]}, "history: expected a list of pairs"),
        ({**LAYOUTS["alpaca"], "history": 5}, "history: expected a list of pairs"),
        ({**LAYOUTS["alpaca"], "input": ["诗"]}, "input is an array, expected text"),
        ({**MESSAGES, "system": ["诗"]}, "system is an array, expected text"),
    ],
)
def test_what_is_no_chat_says_why(record, why):
    assert why in turns_of(record)


def raw(turns: list[Turn] | None = None, text: str = "") -> RawDocument:
    return RawDocument(1, text, "", "", "诗", "", "", [], turns=turns or [])


def test_joined_counts_are_those_of_the_joined_text():
    """Filters must see a chat as they would see its text."""
    options = record_rules(CurateOptions(sources="x"))
    documents = [raw(text=SAID), raw(turns_of(MESSAGES)), raw(text=ASKED)]
    cleaned, found = clean_and_normalize(documents, options.cleaning, options.steps)
    expected = normalize(found.texts, options.steps)
    lines = ("请以《立冬》为题，写一首诗。", "人逐年华老，寒随雨意增。", "山头望樵火，水底见渔灯。")
    assert found.texts[1] == "\n".join(lines)
    assert found.counts.tolist() == expected.counts.tolist()
    assert len(cleaned) == 3 and found.changed["simplified"].tolist() == [True] * 3


def test_a_turn_of_which_nothing_is_left_takes_the_chat_with_it():
    turns = [Turn("user", "\u200b", False), Turn("assistant", SAID, True)]
    rules = record_rules(CurateOptions(sources="x"))
    _, found = clean_and_normalize([raw(turns), raw(text=SAID)], rules.cleaning, rules.steps)
    assert found.texts[0] == "" and found.characters[0] == 0 and found.characters[1] > 0


def chats(lines: list[dict]) -> list[dict]:
    """The fixture's documents as chats: a question about a title, its text as the answer."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"请背诵《{line['title']}》，作者{line['author']}。"},
                {"role": "assistant", "content": line["text"]},
            ],
            "genre": line["genre"],
            "source": line["source"],
        }
        for line in lines
    ]


def check_turns(rows: list[dict]) -> None:
    for row in rows:
        asked, said = row["turns"]
        assert (asked["role"], said["role"]) == ("user", "assistant")
        assert asked["begin"] == 0 and said["begin"] == asked["end"] + 1 and said["end"] == len(row["text"])
        assert row["text"][asked["end"]] == "\n" and row["text"].startswith("请背诵《")
        assert row["loss_spans"] == [[said["begin"], said["end"]]]


def test_chats_are_curated_like_any_document(curate: Callable, write_jsonl: Callable, lines: list[dict]):
    curated = curate(write_jsonl("chats.jsonl", chats(lines)))
    rows = [row for split in ("train", "valid", "test") for row in curated.rows(split)]
    check_turns(rows)
    assert len(rows) > 100 and curated.report()["malformed"] == 0
    plain = curate(write_jsonl("plain.jsonl", lines), store="plain")
    assert plain.output().content_digest != curated.output().content_digest


def test_chats_and_plain_texts_stand_side_by_side(curate: Callable, write_jsonl: Callable, lines: list[dict]):
    half = len(lines) // 2
    sources = f"{write_jsonl('plain.jsonl', lines[:half])},{write_jsonl('chats.jsonl', chats(lines[half:]))}"
    curated = curate(sources, "--batch-bytes", "20000")
    rows = curated.rows("train")
    with_turns = [row for row in rows if row["turns"]]
    check_turns(with_turns)
    assert 20 < len(with_turns) < len(rows) - 20
    assert all(row["loss_spans"] is None for row in rows if not row["turns"])
    again = curate(sources, "--batch-bytes", "9000000", store="again")
    assert again.output().content_digest == curated.output().content_digest


def test_a_chat_without_a_genre_is_of_genre_chat(curate: Callable, write_jsonl: Callable, lines: list[dict]):
    records = [{"messages": record["messages"]} for record in chats(lines)]
    rows = curate(write_jsonl("chats.jsonl", records), "--filter-sets", "*=none").rows("train")
    assert {row["genre"] for row in rows} == {"chat"}


def test_a_chat_can_be_taken_down(curate: Callable, write_jsonl: Callable, lines: list[dict], tmp_path: Path):
    source = write_jsonl("chats.jsonl", chats(lines))
    down = curate(source).rows("train")[0]["id"]
    (tmp_path / "down.txt").write_text(down + "\n", encoding="utf-8")
    left = curate(source, "--exclude", str(tmp_path / "down.txt"), store="other").rows("train")
    assert down not in {row["id"] for row in left}


FORM = "请把下面这段文字翻译成现代汉语，不要遗漏，只回答译文"
REFUSAL = "对不起，这个问题我现在还不能够回答，请换一个问题再问。"


def templated(line: dict, answer: str, form: str = FORM) -> dict:
    """A chat that asks by a template of more than 13 characters."""
    messages = [
        {"role": "user", "content": f"{form}：{line['text']}"},
        {"role": "assistant", "content": answer},
    ]
    return {"messages": messages, "genre": "chat", "source": line["source"]}


def test_the_words_of_a_template_are_not_taken_for_a_copy(
    curate: Callable, write_jsonl: Callable, lines: list[dict]
):
    records = [templated(line, line["text"][::-1]) for line in lines]
    curated = curate(write_jsonl("chats.jsonl", records), "--filter-sets", "chat=none")
    rows, report = curated.rows("train"), curated.report()
    assert len(rows) > 100 and report["forms_of_words"] >= 12
    held = curated.rows("test") + curated.rows("valid")
    shown = {row["text"].split("\n")[0].removeprefix(FORM) for row in held}
    assert not [row for row in rows if any(text in row["text"] for text in shown)]


def test_words_that_many_answer_are_a_copy(
    curate: Callable, write_jsonl: Callable, lines: list[dict], capsys: pytest.CaptureFixture[str]
):
    """An answer carries the loss: a model that learned it knows it, however many say it."""
    records = [templated(line, REFUSAL, "") for line in lines]
    arguments = ("--filter-sets", "chat=none", "--near-duplicate-similarity", "0")
    curate(write_jsonl("chats.jsonl", records), *arguments, expect=65)
    said = capsys.readouterr().err
    assert "overlap takes" in said and "forms of words" not in said
