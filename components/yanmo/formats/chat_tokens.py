"""Chats as the tokens that their model was trained on, of which only the answers count where one is scored.

    <|bos|> <|im_start|> user \n question <|im_end|> \n <|im_start|> assistant \n answer <|im_end|> \n <|eos|>

The ids are those of `yanmo tokenize` (a test compares them), encoded here by the model's own tokenizer.json:
a stage reads no code of another. What counts is each answer and the `<|im_end|>` that ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from yanmo.common.errors import DataError
from yanmo.formats.round_trip import check_given_back

if TYPE_CHECKING:
    from tokenizers import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"
OF_A_DECODER = {"model_input_names": ["input_ids", "attention_mask"], "padding_side": "left"}
"""Of a tokenizer_config.json: what transformers' defaults, which are BERT's, get wrong. Version 4 hands
`token_type_ids` to a model that takes none; a batch that is padded on the right goes on from its padding."""


class Turn(NamedTuple):
    """What one side says."""

    role: str
    """system, user or assistant."""
    text: str
    is_answer: bool = False
    """Whether it counts."""


def has_marks(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer knows the marks around turns."""
    return None not in (tokenizer.token_to_id(START), tokenizer.token_to_id(END))


def chat_ids(
    tokenizer: Tokenizer, turns: Sequence[Turn], bos: int, name: str = "a chat", who: str = "the model"
) -> tuple[list[int], list[bool]]:
    """`<|bos|>` and all turns of a chat, without its `<|eos|>`, and which of these tokens count.

    Args:
        name, who: the chat and its model, for a message.

    Raises:
        DataError: the tokenizer has no marks for turns, or a turn does not come back from its ids.
    """
    start, end = tokenizer.token_to_id(START), tokenizer.token_to_id(END)
    if start is None or end is None:
        raise DataError(
            f"{name}: the tokenizer of {who} has no {START} and {END}; take a model of a tokenizer made by "
            "`yanmo tokenize`"
        )
    line_break = tokenizer.encode("\n", add_special_tokens=False).ids
    heads = [turn.role + "\n" for turn in turns]
    turn_texts = [head + turn.text for head, turn in zip(heads, turns, strict=True)]
    runs = tokenizer.encode_batch(turn_texts, add_special_tokens=False)
    named = [(f"turn {i + 1} of {name}", text) for i, text in enumerate(turn_texts)]
    check_given_back(tokenizer, named, [run.ids for run in runs], who)
    ids, counted = [bos], [False]
    for turn, head, run in zip(turns, heads, runs, strict=True):
        ids += [start, *run.ids, end, *line_break]
        answered = [turn.is_answer and stop > len(head) for _, stop in run.offsets]
        counted += [False, *answered, turn.is_answer, *([False] * len(line_break))]
    return ids, counted


def prompt_ids(tokenizer: Tokenizer, turns: Sequence[Turn], bos: int) -> list[int]:
    """Return the ids that a model reads before it answers: the turns, and the head of its own."""
    before = chat_ids(tokenizer, turns, bos)[0]
    start = tokenizer.token_to_id(START)
    assert start is not None  # or chat_ids would have raised
    head = tokenizer.encode("assistant\n", add_special_tokens=False).ids
    return [*before, start, *head]
