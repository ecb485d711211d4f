"""The tokenizer of a channel: its champion's, else the one that its last run used.

A new one every night would make every night's token cache, model and bits a world of their own. It is kept
for as long as nobody asks for another vocabulary: where the options of the vocabulary differ from those that
a tokenizer was made with, it is not the one that was asked for, and a new one is made.
"""

from __future__ import annotations

import logging

from yanmo.common.errors import DataError
from yanmo.options.fields import names_of, spelled
from yanmo.options.shared import ChannelOptions, StageOptions
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import open_named, pointer_name, read_pointer

log = logging.getLogger(__name__)
TOKENIZER = "tokenizer"


def tokenizer_of(model: Output | None) -> Output | None:
    """Return the tokenizer of a model's token cache, or the one it was imported with; else None."""
    cache = model.input("token_cache") if model else None
    if model and not cache and TOKENIZER in model.manifest.references:
        return model.part(TOKENIZER)
    return cache.part(TOKENIZER) if cache else None


def channels_tokenizer(
    store: ObjectStore, options: ChannelOptions, champion: Output | None, wanted: StageOptions | None
) -> Output | None:
    """Return the first of the channel's tokenizers that has the wanted vocabulary; None for a new one.

    Args:
        wanted: the options of `tokenize`; None for whatever vocabulary.

    Raises:
        DataError: a pointer names what is not there.
    """
    differs = ""
    for whose, tokenizer in _known(store, options, champion):
        found = _difference(tokenizer, wanted)
        if not found:
            log.info("tokenizer of channel %s: %s, %s", options.channel, tokenizer, whose)
            return tokenizer
        differs = differs or f"{tokenizer}, {whose}, has {found}"
    if differs:
        log.warning(
            "a new tokenizer is made, if this run's data have none yet, and its models cannot go on from "
            "those of before: %s. To keep the channel's: model_tokenizer=champion",
            differs,
        )
    else:
        log.info("channel %s has no tokenizer yet, so a new one is made", options.channel)
    return None


def _known(store: ObjectStore, options: ChannelOptions, champion: Output | None) -> list[tuple[str, Output]]:
    found = []
    try:
        of_champion = tokenizer_of(champion)
    except DataError as error:  # no night is lost for it: the last run's is most likely the same
        log.warning("the champion's tokenizer cannot be read: %s", error)
        of_champion = None
    if of_champion:
        found.append(("the champion's", of_champion))
    reference = read_pointer(store, options.channel, TOKENIZER)
    if reference and not (of_champion and reference.content_digest == of_champion.content_digest):
        where = pointer_name(options.channel, TOKENIZER)
        found.append(("the last run's", open_named(store, reference, where)))
    return found


def _difference(tokenizer: Output, wanted: StageOptions | None) -> str:
    """Return in words what is not as wanted; "" for nothing, and always for an imported one."""
    if wanted is None or "imported" in tokenizer.manifest.options:
        return ""
    made, known = tokenizer.manifest.options, names_of(type(wanted), kind="semantic")
    for name in known:
        if name in made and made[name] != getattr(wanted, name):
            return f"{name} {spelled(made[name])}, not {spelled(getattr(wanted, name))}"
    before = str((tokenizer.manifest.inputs.get("user_dictionary") or {}).get("uri", ""))
    now = str(getattr(wanted, "user_dictionary", ""))
    return "" if before == now else f"user_dictionary {before or 'none'}, not {now or 'none'}"
