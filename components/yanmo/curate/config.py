"""Options of the curate stage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yanmo.common.errors import UsageError
from yanmo.common.options import NONE, StageOptions, input_ref, opt
from yanmo.common.stage import Stage

ENCODINGS = ("auto", "utf-8", "gb18030", "big5", "utf-16", "utf-16-le", "utf-16-be")
LAYOUTS = ("block", "line", "file")
TEXT_FORMS = ("classical-1", "modern-1")


@dataclass(frozen=True, kw_only=True)
class CurateOptions(StageOptions):
    """Turn raw text into clean documents, split in train, valid, test and confirm."""

    sources: str = opt(
        "",
        "files, folders, globs or a sources .yaml, separated by commas or spaces, each with settings such as "
        ";genre=shi (docs/curate.md): .jsonl .parquet .txt, plain or .gz .zst .xz .bz2",
        kind="environment",
    )
    evaluation_set: str = input_ref(
        "evaluation set that is pinned; 'none' chooses a new one from this text",
        stages=("evaluation_set",),
        optional=True,
    )
    exclude: str = opt(
        "",
        "file of document ids to take down, one per line, with every copy of their text",
        kind="environment",
        form=False,
    )
    text_field: str = opt("text", "field or column with a document's text", form=False)
    title_field: str = opt("title", "field with its title (optional)", form=False)
    author_field: str = opt("author", "field with its author (optional)", form=False)
    genre_field: str = opt("genre", "field with its genre", form=False)
    source_field: str = opt(
        "source", "field with where it comes from; the file's name where absent", form=False
    )
    license_field: str = opt("license", "field with its licence; see --licenses where absent", form=False)
    label_fields: str = opt("dynasty", "other fields kept as labels, separated by commas", form=False)
    default_genre: str = opt(
        "", "genre of documents that name none; empty counts them as malformed", form=False
    )
    genres: str = opt(
        "",
        "genres that must be there, separated by commas (shi,ci,wen,fu); empty takes what comes",
        form=False,
    )
    licenses: str = opt(
        "chinese-poetry/=MIT,Werneror/=MIT,NiuTrans/=MIT,kanripo/=CC-BY-SA-4.0",
        "licence of documents that name none: beginning of the source=licence, separated by commas",
        form=False,
    )
    encoding: str = opt(
        "auto", "encoding of text files; auto tells each file's by statistics", form=False, choices=ENCODINGS
    )
    text_layout: str = opt(
        "block",
        "what a document is in a .txt file: a block between blank lines, a line, or the file",
        form=False,
        choices=LAYOUTS,
    )
    text_form: str = opt(
        "classical-1",
        "how text is written; only texts of one form are compared",
        form=False,
        choices=TEXT_FORMS,
    )
    steps: str = opt(
        "",
        "steps of cleaning and normalization added or left out: name,no-name (docs/curate.md)",
        form=False,
    )
    keep_original: bool = opt(
        False, "keep the text before simplification as the label 'original' where it differs", form=False
    )
    mask_personal: str = opt(
        "phone,id,mail", "personal data that is masked: some of phone, id, mail; or none", form=False
    )
    filter_sets: str = opt(
        "*=verse",
        "filters by genre: genre=verse, classical, modern or none, separated by commas; * is the rest",
        form=False,
    )
    filter_limits: str = opt(
        "",
        "thresholds other than the sets': filter=number or set.filter=number, separated by commas",
        form=False,
    )
    filter_shares: str = opt(
        "",
        "share of documents one filter may drop where not --max-filter-share: filter=share, with commas",
        form=False,
    )
    min_han_characters: int = opt(10, "Han characters a document has at least", form=False)
    max_characters: int = opt(1_000_000, "characters a document has at most", form=False)
    min_han_share: float = opt(0.5, "share of Han characters a document has at least", form=False)
    max_lacuna_share: float = opt(0.03, "share of marks for lost characters it has at most", form=False)
    max_private_use_share: float = opt(0.01, "share of private-use characters it has at most", form=False)
    max_malformed_share: float = opt(0.01, "share of lines that may be malformed", form=False)
    max_filter_share: float = opt(
        0.2, "share of documents, in all or in a genre of 100 or more, that one filter may drop", form=False
    )
    test_characters: int = opt(50_000, "characters of the test split at most, per genre", form=False)
    valid_characters: int = opt(12_500, "characters of the validation split at most, per genre", form=False)
    confirm_characters: int = opt(
        25_000, "characters of the confirmation split at most, per genre; 0 chooses none", form=False
    )
    test_share: float = opt(0.1, "share of a genre's characters in the test split at most", form=False)
    valid_share: float = opt(
        0.03, "share of a genre's characters in the validation split at most", form=False
    )
    confirm_share: float = opt(
        0.05, "share of a genre's characters in the confirmation split at most", form=False
    )
    min_split_documents: int = opt(
        10, "documents per genre in each held-out split at least, up to a fifth of the genre", form=False
    )
    add_confirmation: bool = opt(
        False,
        "add a confirmation split from this text to the channel's pinned evaluation set, and stop",
        kind="environment",
        form=False,
    )
    overlap_characters: int = opt(
        13,
        "Han characters in a row that train may not share with the evaluation set; 0 allows any",
        form=False,
    )
    shard_characters: int = opt(20_000_000, "characters per output file, about", form=False)
    workers: int = opt(2, "processes that normalize text", kind="execution", form=False)
    batch_bytes: int = opt(
        4_194_304, "bytes of text that one process normalizes at a time", kind="execution", form=False
    )
    near_duplicate_similarity: float = opt(
        0.5,
        "share of 4-character shingles (Jaccard) from which two texts are copies of one; 0 finds exact "
        "copies only",
        form=False,
    )
    split_by: str = opt(
        "cluster",
        "what is held out whole: clusters of near duplicates, or all that is of one author or source",
        form=False,
        choices=("cluster", "author", "source"),
    )
    overlap_action: str = opt(
        "remove",
        "what happens to train documents that share such a run: remove or only report",
        form=False,
        choices=("remove", "report"),
    )
    max_overlap_share: float = opt(
        0.2,
        "share of documents, in all or in a genre of 100 or more, that may share such a run",
        form=False,
    )
    benchmarks: str = opt(
        "",
        "files, folders or globs (.jsonl .parquet .txt .csv .tsv) with whose texts train may share no run",
        kind="environment",
        form=False,
    )
    shard: str = opt(
        "",
        "map only a part of the source files and stop, such as 2/7; a run without it finds the work done",
        kind="environment",
        form=False,
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
        if not self.sources.strip():
            raise UsageError(
                "--sources is empty: expected files, folders or globs of .jsonl, .parquet or .txt"
            )
        self._check_shares()
        for name in ("workers", "batch_bytes", "shard_characters", "max_characters", "test_characters"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}: expected at least 1")
        for name in (
            "min_han_characters",
            "valid_characters",
            "confirm_characters",
            "min_split_documents",
            "overlap_characters",
        ):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}: expected 0 or more")
        if 0 < self.overlap_characters < 5:
            raise UsageError(
                f"--overlap-characters {self.overlap_characters}: every text shares runs that short; "
                "expected 0 (off) or at least 5"
            )
        if self.benchmarks.strip() and not self.overlap_characters:
            raise UsageError("--benchmarks needs --overlap-characters: 0 looks for no shared run")
        self._check_addition()
        part = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", self.shard or "1/1")
        if not part or not 1 <= int(part[1]) <= int(part[2]):
            raise UsageError(f"--shard {self.shard}: expected a part of a whole, 1/7 to 7/7")
        for entry in self.licenses.split(","):
            if entry.strip() and "=" not in entry:
                raise UsageError(f"--licenses: expected beginning=licence, found {entry.strip()!r}")

    def _check_addition(self) -> None:
        if not self.add_confirmation:
            return
        if self.evaluation_set == NONE:
            raise UsageError(
                "--add-confirmation adds to a pinned evaluation set; --evaluation-set none chooses a new "
                "one, which has a confirmation split anyway: give one of the two"
            )
        if not self.confirm_characters or not self.confirm_share:
            raise UsageError(
                "--add-confirmation needs --confirm-characters and --confirm-share above 0: found "
                f"{self.confirm_characters} and {self.confirm_share:g}"
            )
        if self.shard:
            raise UsageError("--add-confirmation chooses among all of the text; leave out --shard")

    def _check_shares(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name.endswith(("_share", "_similarity")) and not 0 <= value <= 1:
                raise UsageError(f"--{name.replace('_', '-')} is {value}: expected a share from 0 to 1")
        if self.test_share + self.valid_share > 0.5:
            raise UsageError(
                f"--test-share {self.test_share} and --valid-share {self.valid_share}: more than half of the "
                "text would not be trained on"
            )


STAGE = Stage(
    name="curate",
    image="data",
    revision=6,
    config=CurateOptions,
    outputs={"documents": "Dataset", "evaluation_set": "Dataset"},
)
