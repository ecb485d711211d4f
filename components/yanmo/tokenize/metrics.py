"""What tokenize serves on /metrics."""

from __future__ import annotations

from yanmo.stage.declaration import Metric

METRICS = (
    Metric(name="tokens", help="Tokens in the cache", zh="词元缓存中的词元数", final=True),
    Metric(name="characters", help="Characters in the cache", zh="词元缓存中的字符数", final=True),
    Metric(name="documents", help="Documents in the cache", zh="词元缓存中的文档数", final=True),
    Metric(
        name="text_bytes",
        help="UTF-8 bytes of the text in the cache",
        zh="缓存中文本的 UTF-8 字节数",
        final=True,
    ),
    Metric(
        name="byte_tokens_ratio",
        help="Share of the tokens that are bytes of characters without a piece",
        zh="词元中作为无对应词片字符之字节的占比",
        final=True,
    ),
    Metric(
        name="jieba_boundary_recall_ratio",
        help="Share of jieba's word boundaries that are token boundaries",
        zh="jieba 的词界中同时是词元边界的占比",
        final=True,
    ),
)
