"""A vocabulary as the files that `transformers.AutoTokenizer` loads without custom code.

The JSON is written here and not by `tokenizers`, so that its bytes depend on the vocabulary alone. There is
no normalizer and no pre-tokenizer: what goes in comes out, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from yanmo.common.records import GENRES
from yanmo.common.store.commit import Attempt
from yanmo.common.token_cache import GENRES_FILE, SpecialIds
from yanmo.tokenize.vocabulary import CHAT, RESERVED, ROLES, SPECIAL, TAGS, Vocabulary

CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""ChatML, as Qwen's models have it, behind the `<|bos|>` that begins every document. An answer ends with
`<|im_end|>`; a chat of the training text ends with `<|eos|>` besides.

In tokenizer_config.json and not in a chat_template.jinja: transformers reads both, other tools only this.
"""


def special_ids(vocab_size: int, genres: Iterable[str]) -> SpecialIds:
    """The special ids of a vocabulary, and a tag for each genre: Yanmo's own first, then others sorted.

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
    bos, eos, pad, unk = SPECIAL
    named = {"bos_token": bos, "eos_token": eos, "pad_token": pad, "unk_token": unk}
    config = named | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 1_000_000_000,
    }
    attempt.write("tokenizer.json", tokenizer_json(vocabulary))
    attempt.write("tokenizer_config.json", _json(config))
    attempt.write("special_tokens_map.json", _json(named))
    attempt.write(GENRES_FILE, special.to_json())


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """The text of tokenizer.json."""
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
        if piece not in ROLES
    ]
    value = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
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
