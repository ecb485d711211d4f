"""What curate serves on /metrics."""

from __future__ import annotations

from yanmo.stage.declaration import GENRE, Label, Metric

_REASON = Label(
    name="reason",
    about="filter or search for copies that dropped it",
    zh="去掉它的过滤器或查重步骤",
    most=128,
)

METRICS = (
    Metric(
        name="documents_read",
        kind="counter",
        help="Documents read",
        zh="读入的文档数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="documents_kept",
        kind="counter",
        help="Documents in the train split",
        zh="训练集中的文档数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="characters_kept",
        kind="counter",
        help="Characters in the train split",
        zh="训练集中的字符数",
        labels=(GENRE,),
        final=True,
    ),
    Metric(
        name="documents_dropped",
        kind="counter",
        help="Documents dropped",
        zh="去掉的文档数",
        labels=(_REASON,),
        final=True,
    ),
    Metric(
        name="lines_malformed",
        kind="counter",
        help="Lines that are not documents",
        zh="不成文档的行数",
        final=True,
    ),
    Metric(
        name="source_bytes",
        help="Size of the raw files, as they are stored",
        zh="原始文件的大小（按其存储形式）",
        final=True,
    ),
)
