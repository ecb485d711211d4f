"""MB of UTF-8 per CPU-second of SentencePiece's Unigram; benchmarks/tokens.py runs it in its environment.

    python tokens_sentencepiece.py TEXTS.json VOCABULARY REPEATS

Trains on the texts themselves (its speed does not depend on how good its pieces are) and encodes each.
"""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import sentencepiece


def trained(texts: list[str], size: int) -> Any:
    """A processor whose pieces were trained on the texts, of `size` pieces at most."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts for line in text.split("\n")),
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        character_coverage=0.9995,
        byte_fallback=True,
        normalization_rule_name="identity",
        num_threads=1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def main() -> None:
    """Print the speed and the number of pieces as JSON."""
    texts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    processor, best = trained(texts, int(sys.argv[2])), float("inf")
    for _ in range(int(sys.argv[3])):
        start = time.process_time()
        processor.encode(texts, num_threads=1)
        best = min(best, time.process_time() - start)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(json.dumps({"speed": size / best, "pieces": processor.get_piece_size()}))


if __name__ == "__main__":
    main()
