"""Every command with a command line that works on the store, and the declaration of its options."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property

from chaos.hostile.rule import RETRY
from chaos.start import CHANNEL, STAGES
from yanmo.options.fields import names_of, values_of
from yanmo.options.values import Values

_CHANNEL = f"--channel={CHANNEL}"
COMMON = ("--store=@store", _CHANNEL, "--metrics-port=-1", "--scratch=@case/scratch")
OF_TOOLS = ("--store=@store", "--scratch=@case/scratch")


@dataclass(frozen=True)
class Command:
    """A command of the console script."""

    words: tuple[str, ...]
    """As it is called: ("store", "ls")."""
    declared: str
    """Module and name of the dataclass of its options."""
    flags: tuple[str, ...]
    """Options and words with which it ends with 0 on the store."""
    commits: tuple[str, ...] = ()
    """Outputs that its phases commit before its own."""
    codes: tuple[int, ...] = ()
    """With which it may end besides those of all commands."""
    says_on_stdout: bool = False
    """Whether what it found is its answer, also where that ends it with another code than 0."""

    @property
    def name(self) -> str:
        """For the names of cases."""
        return "-".join(self.words)

    @property
    def is_stage(self) -> bool:
        """Whether it makes an output."""
        return len(self.words) == 1 and self.words[0] in STAGES

    @property
    def asks_a_cluster(self) -> bool:
        """Whether it can do nothing without an API, and none answers here."""
        return "--look-seconds=0" in self.flags and "--store=@store" not in self.flags

    @cached_property
    def options(self) -> type:
        """The dataclass of its options."""
        module, _, name = self.declared.partition(":")
        found = importlib.import_module(module)
        return getattr(found, name) if name else found.STAGE.config  # type: ignore[no-any-return]

    @cached_property
    def values(self) -> dict[str, Values]:
        """Option or word -> what it may be."""
        return values_of(self.options)

    @cached_property
    def words_declared(self) -> list[str]:
        """Names of what stands without a flag, in order."""
        return list(names_of(self.options, kind="word"))

    def line(self, *more: str, without: str = "") -> tuple[str, ...]:
        """The command line with `more`, and without the option called `without`."""
        left = tuple(flag for flag in self.flags if not without or not flag.startswith(f"{without}="))
        return (*self.words, *left, *more)


def _as_flags(words: tuple[str, ...]) -> tuple[str, ...]:
    """`--a b --c` as `--a=b --c`."""
    found: list[str] = []
    for word in words:
        if word.startswith("--") or not found or not found[-1].startswith("--") or "=" in found[-1]:
            found.append(word)
        else:
            found[-1] += f"={word}"
    return tuple(found)


_PARTS = {
    "curate": ("curate_map", "curate_similar", "evaluation_set"),
    "balance": ("balance_count",),
    "tokenize": ("token_shard", "tokenizer"),
    "evaluate": ("baselines", "writing", "contamination"),
}


def _stage(name: str) -> Command:
    flags = _as_flags(STAGES[name])
    flags = tuple("--sources=@in/documents.jsonl" if f.startswith("--sources=") else f for f in flags)
    return Command((name,), f"yanmo.{name}.config", (*flags, *COMMON), _PARTS.get(name, ()))


def _tool(words: str, declared: str, *flags: str) -> Command:
    return Command(tuple(words.split()), declared, (*flags, *OF_TOOLS))


FORBIDDEN = 77
"""Of `doctor`: something may not be asked."""
_NOBODY = ("--host=http://127.0.0.1:9", "--look-seconds=0")
"""A cluster that does not answer: what is wrong with an option is said before it is asked."""


def _cluster(words: str, declared: str, *flags: str, codes: tuple[int, ...] = (), **how: bool) -> Command:
    declared = f"yanmo_pipelines.cluster.{declared}"
    return Command((words,), declared, (*flags, *_NOBODY), codes=(RETRY, *codes), **how)


_TOOLS = "yanmo.tools"
COMMANDS = {
    command.name: command
    for command in (
        *map(_stage, STAGES),
        Command(("resolve",), "yanmo.resolve.config:ResolveOptions", COMMON),
        _tool("runs", f"{_TOOLS}.runs.command:RunsOptions", _CHANNEL),
        _tool("store ls", f"{_TOOLS}.store.options:LsOptions"),
        _tool("store show", f"{_TOOLS}.store.options:ShowOptions", f"{CHANNEL}/train"),
        _tool("store verify", f"{_TOOLS}.store.options:VerifyOptions"),
        _tool("store diff", f"{_TOOLS}.store.options:DiffOptions", f"{CHANNEL}/curate", f"{CHANNEL}/balance"),
        _tool("store gc", f"{_TOOLS}.store.options:GcOptions", "--older-than=0s", "--delete"),
        _tool("store cp", f"{_TOOLS}.store.options:CpOptions", f"{CHANNEL}/tokenize", "--to=@case/out/copy"),
        _tool("store lineage", f"{_TOOLS}.store.options:LineageOptions", f"{CHANNEL}/train"),
        _tool(
            "cache show",
            f"{_TOOLS}.cache.command:CacheShowOptions",
            f"{CHANNEL}/tokenize",
            "--document=0",
        ),
        _tool("cache plan", f"{_TOOLS}.cache.command:PlanOptions", f"{CHANNEL}/tokenize"),
        _tool(
            "tokenizer compare",
            f"{_TOOLS}.tokenizer.command:CompareOptions",
            f"--documents={CHANNEL}/balance",
            "--candidates=jieba",
            "--sizes=1024,2048",
            "--characters=5000",
            "--held-out-characters=2000",
        ),
        _tool("tokenizer import", f"{_TOOLS}.tokenizer.command:AdoptOptions", "@in/model", _CHANNEL),
        _tool("model import", f"{_TOOLS}.model.command:ImportOptions", "@in/model"),
        _tool("promote history", "yanmo.promote.command:HistoryOptions", _CHANNEL),
        _tool(
            "promote rollback",
            "yanmo.promote.command:RollbackOptions",
            _CHANNEL,
            "--why=w",
            "--yes",
        ),
        _tool("run", "yanmo_pipelines.run:PipelineRunOptions"),
        _cluster("submit", "submit:SubmitOptions"),
        _cluster("rerun", "rerun:RerunOptions", "train"),
        _cluster("status", "status.command:StatusOptions", "--store=@store", says_on_stdout=True),
        _cluster("doctor", "doctor:DoctorOptions", "--only=kfp", codes=(FORBIDDEN,), says_on_stdout=True),
        Command(("compile",), "yanmo_pipelines.compile:CompileOptions", ("--out=@case/out",)),
    )
}
"""`promote rollback` has no earlier champion here, to which it could go back."""
