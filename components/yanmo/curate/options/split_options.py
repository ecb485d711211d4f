"""Options of copies, of what is held out, and of what train may share with it."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class DuplicateOptions(Options, group="duplicates"):
    """Which texts count as copies of one another (docs/how-to/prepare-text.md)."""

    near_duplicate_similarity: float = opt(
        0.5,
        "similarity from which two texts count as copies: the share of shingles of four characters (in "
        "modern-1 words and numbers too) that both have (Jaccard); 0 finds exact copies only",
        most=1,
        often=True,
        phase="clusters",
        auto="0.8 for modern-1, else {default}",
    )
    split_by: str = opt(
        "cluster",
        "what is never divided between train and the held-out splits: a cluster of near duplicates, "
        "all texts of an author, or of a source",
        choices=("cluster", "author", "source"),
        often=True,
        phase="clusters",
    )


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options, group="splits"):
    """What is held out of training: test, validation and confirmation splits."""

    test_characters: int = opt(
        50_000, "largest size of the test split, characters per genre", least=1, often=True, phase="split"
    )
    valid_characters: int = opt(
        12_500, "largest size of the validation split, characters per genre", often=True, phase="split"
    )
    confirm_characters: int = opt(
        25_000, "largest size of the confirmation split, characters per genre; 0 makes none", phase="confirm"
    )
    test_share: float = opt(
        0.1, "largest share of a genre's characters in the test split", most=1, phase="split"
    )
    valid_share: float = opt(
        0.03, "largest share of a genre's characters in the validation split", most=1, phase="split"
    )
    confirm_share: float = opt(
        0.05, "largest share of a genre's characters in the confirmation split", most=1, phase="confirm"
    )
    min_split_documents: int = opt(
        10,
        "least number of documents per genre in each held-out split; never more than a fifth of the genre",
        phase="confirm",
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other."""
        if self.test_share + self.valid_share > 0.5:
            return [
                f"--test-share {self.test_share:g} and --valid-share {self.valid_share:g}: more than half of "
                "the text would not be trained on; give smaller ones"
            ]
        return []


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(Options, group="overlap"):
    """What train may not share with the evaluation set and with benchmarks."""

    overlap_characters: int = opt(
        13,
        "length from which a run of Han characters (in modern-1 of words and numbers too) counts as shared "
        "between train and the evaluation set; 0 allows any run",
        phase="train",
    )
    overlap_share: float = opt(
        0.0,
        "share of a train document that lies in such runs from which it counts as overlapping; "
        "fewer are left, unless a held-out text is found again by a fifth of itself; 0: one run is enough",
        most=1,
        phase="train",
        auto="0.05 for modern-1, else {default}",
    )
    max_overlap_share: float = opt(
        0.2,
        "largest share of documents, and of characters, that may share such a run, of all and of every genre "
        "with 100 documents or more; above it the run fails",
        most=1,
        phase="train",
    )
    benchmarks: str = opt(
        "",
        "benchmark texts that train may share no run of --overlap-characters with: files, folders or "
        "globs (.jsonl .json .parquet .txt .md .csv .tsv)",
        kind="environment",
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Return the options that contradict each other."""
        if 0 < self.overlap_characters < 5:
            return [
                f"--overlap-characters {self.overlap_characters}: every text shares runs that short; "
                "expected 0 (off) or at least 5"
            ]
        if self.benchmarks.strip() and not self.overlap_characters:
            return ["--benchmarks needs --overlap-characters: 0 looks for no shared run"]
        return []
