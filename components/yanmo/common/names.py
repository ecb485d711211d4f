"""The stages and what each makes, the only list of them; and names that people give.

Both become parts of objects' names in a store. The standard library alone: `yanmo --help` reads it.
"""

from __future__ import annotations

import re

NONE = "none"
"""Body of a reference file, or value of an option that names an output, for "there is none"."""
STAGES = {
    "curate": "raw text -> clean documents, split into train, valid, test and confirm",
    "balance": "documents -> documents with exact quotas per class, augmented on request",
    "tokenize": "documents -> tokenizer and token cache",
    "train": "token cache -> model",
    "evaluate": "model -> bits per character by genre, baselines, generated samples",
    "promote": "new model and champion -> verdict, HTML page, promotion",
}
"""Stage -> what it does, in the order of a run. Each is a room of its name below `yanmo`, and a command."""
DATA_STAGES = tuple(STAGES)[: [*STAGES].index("train")]
"""Those that make what a model is trained on."""
PARTS = {
    "evaluation_set": "curate",
    "tokenizer": "tokenize",
    **dict.fromkeys(("baselines", "writing", "contamination"), "evaluate"),
    "seed_noise": "train",
}
"""Part -> the stage that commits it beside its own output. A pointer of its name follows the newest one."""
_PIECES = {
    **dict.fromkeys(("curate_map", "curate_similar"), "curate"),
    "token_shard": "tokenize",
}
"""What a stage keeps of its work for its next run, without a pointer."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")


def maker_of(kind: str) -> str:
    """Return the stage that makes outputs of this kind: the stage of that name, or whose part it is."""
    return (PARTS | _PIECES).get(kind, kind)


def name_problems(flag: str, name: str) -> list[str]:
    """Return what is wrong with the name of a channel or a pointer; nothing where it may be one."""
    return [] if _PART.match(name) else [f"{flag} {name[:100]!r}: expected up to 100 letters, digits, - or _"]
