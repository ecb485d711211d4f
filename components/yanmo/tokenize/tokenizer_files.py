"""A vocabulary as the files that `transformers.AutoTokenizer` loads without custom code.

The JSON is written here, not by `tokenizers`, so that its bytes depend on the vocabulary alone. There is no
normalizer and no pre-tokenizer: decoding returns the text byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from yanmo.formats.chat_tokens import OF_A_DECODER
from yanmo.formats.records import GENRES
from yanmo.formats.token_cache import GENRES_FILE, SpecialIds
from yanmo.store.commit import Attempt
from yanmo.tokenize.vocabulary import CHAT, RESERVED, SPECIAL, TAGS, Vocabulary

CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string %}{{- message['content'] }}"
    "{%- else %}{%- for part in message['content'] %}"
    "{%- if part['type'] != 'text' %}{{- raise_exception('expected parts of type text') }}{%- endif %}"
    "{{- part['text'] }}"
    "{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""ChatML as in Qwen's models, after the `<|bos|>` that begins every document. An answer ends with
`<|im_end|>`; a chat of the training text also ends with `<|eos|>`. A content is a text or a list of parts.

In tokenizer_config.json, not in a chat_template.jinja: transformers reads both, other tools only the first.
"""

_MARKS = (*SPECIAL, *TAGS, *CHAT)
"""The pieces that no text is ever segmented into."""
_BYTE_FALLBACK = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def special_ids(vocab_size: int, genres: Iterable[str]) -> SpecialIds:
    """Return the special ids of a vocabulary, and a tag for each genre: Yanmo's own, then others.

    Genres beyond the 59th have no tag.
    """
    others = sorted(set(genres) - set(GENRES))
    tagged = [*GENRES, *others][: len(TAGS)]
    return SpecialIds(
        vocab_size=vocab_size,
        bos=0,
        eos=1,
        pad=2,
        unk=3,
        genres=tuple(tagged),
        tag_ids=tuple(range(len(SPECIAL), len(SPECIAL) + len(tagged))),
        im_start=RESERVED.index(CHAT[0]),
        im_end=RESERVED.index(CHAT[1]),
    )


def write_tokenizer(attempt: Attempt, vocabulary: Vocabulary, special: SpecialIds) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and genres.json."""
    attempt.write("tokenizer.json", tokenizer_json(vocabulary))
    write_files(attempt, special, unk=SPECIAL[3])


def write_files(attempt: Attempt, special: SpecialIds, *, unk: str = "") -> None:
    """Write the files that belong to a tokenizer.json.

    Args:
        unk: the unknown token; "" in a tokenizer that falls back to bytes.
    """
    bos, eos, pad = SPECIAL[:3]
    named = {"bos_token": bos, "eos_token": eos, "pad_token": pad} | ({"unk_token": unk} if unk else {})
    config = named | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **OF_A_DECODER,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 1_000_000_000,
    }
    attempt.write("tokenizer_config.json", _json(config))
    attempt.write("special_tokens_map.json", _json(named))
    attempt.write(GENRES_FILE, special.to_json())


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """Return the text of tokenizer.json."""
    added = [
        {
            "id": i,
            "content": piece,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, piece in enumerate(RESERVED)
        if piece in _MARKS
    ]
    value = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": _BYTE_FALLBACK,
        "model": {
            "type": "Unigram",
            "unk_id": SPECIAL.index("<unk>"),
            "vocab": list(zip(vocabulary.pieces, vocabulary.scores, strict=True)),
            "byte_fallback": True,
        },
    }
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
