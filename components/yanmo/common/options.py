"""Stage options: a stage's config dataclass is the only list of them.

Flags, the YAML file, the KFP component's parameters and the run form are all made from the
dataclass, so adding an option is a one-line diff. Standard library only (PyYAML is imported when a
file is read), so that every image and the pipeline compiler can import a `config.py`.

Alternative not taken: pydantic. Options here are scalars, and the compiler and both images stay free
of a compiled dependency.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar, get_type_hints

from yanmo.common.errors import UsageError
from yanmo.common.options_file import read_yaml, shown_source

Kind = Literal["semantic", "execution", "environment", "input"]
"""semantic: part of the key. execution: recorded, not in the key. environment: neither.
input: a reference to another stage's output; its content digest is part of the key."""

NONE = "none"
"""Body of a reference file, or value of an input flag, that stands for "there is none"."""

Scalar = str | int | float | bool
C = TypeVar("C")


def opt(
    default: Any,
    help: str,
    *,
    kind: Kind = "semantic",
    form: bool = True,
    choices: Sequence[str] = (),
    words: Mapping[str, int] | None = None,
    auto: str = "",
) -> Any:
    """Declare one option.

    Args:
        default: value when nothing else is given; its type is the option's type.
        help: one line with the unit; ASCII, as it is stored in KFP's database.
        kind: whether it belongs to the key (see `Kind`).
        form: whether pipelines show it on the run form; flags and files always take it.
        choices: the only values allowed; a drop-down on the run form.
        words: words that flags and files may say instead of a number.
        auto: what the option becomes where nobody gives it, for `--help`; `{default}` in it is the default.
            Given, `auto` and an empty text then mean "not given here", so that what is below them counts.
    """
    meta = {"help": help, "kind": kind, "form": form, "choices": tuple(choices), "words": words or {}}
    meta["auto"] = auto.format(default=shown(default))
    return dataclasses.field(default=default, metadata=meta)


class _NotGiven:
    """What `auto` is read as, where it means "not given here"."""

    def __repr__(self) -> str:
        return repr(AUTO)

    def __str__(self) -> str:
        return AUTO


AUTO = "auto"
_NOT_GIVEN = _NotGiven()


def input_ref(
    help: str,
    *,
    stages: Sequence[str],
    optional: bool = False,
    default: str = "",
    keyed: bool = True,
    also: Sequence[str] = (),
) -> Any:
    """Declare an input: a reference to an output of one of `stages`.

    Its flag takes a file holding a reference, `<stage>/<key>`, `latest` or `none`; empty means
    what `--inputs` says.

    Args:
        help: one line, ASCII.
        stages: producers in order of preference; `latest` follows the channel's pointer of the
            first of them that has one.
        optional: whether the stage can do without it.
        default: `none` for an input that is used only when it is asked for.
        keyed: False where the stage's own output does not depend on it (only a part's does).
        also: stages whose outputs may be given by hand as well; no pointer to them is followed.
    """
    meta = {
        "help": help,
        "kind": "input",
        "form": False,
        "choices": (),
        "stages": tuple(stages),
        "optional": optional,
        "keyed": keyed,
        "also": tuple(also),
    }
    return dataclasses.field(default=default, metadata=meta)


def flag(name: str) -> str:
    """The command-line flag of the option called `name`."""
    return "--" + name.replace("_", "-")


def by_kind(config: Any, *kinds: Kind) -> dict[str, Scalar]:
    """The options of `config` that are of one of `kinds`, by name, sorted."""
    fields = dataclasses.fields(config)
    chosen = {f.name: getattr(config, f.name) for f in fields if f.metadata["kind"] in kinds}
    return dict(sorted(chosen.items()))


def option_fields(cls: type, *kinds: Kind) -> Iterator[dataclasses.Field[Any]]:
    """The fields of `cls` of one of `kinds` (all when none is given), in order of declaration."""
    for field in dataclasses.fields(cls):
        if not kinds or field.metadata["kind"] in kinds:
            yield field


def parse_bool(text: str) -> bool:
    """Read true/false as KFP ("true"), YAML and Python (str(True)) spell it."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")


def parse_int(text: str) -> int:
    """Read an integer as KFP may spell it: `1000`, `1000.0` or `1e3`."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}") from None
    if not number.is_integer():
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}")
    return int(number)


def parse_float(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None


_PARSERS: dict[type, Any] = {bool: parse_bool, int: parse_int, float: parse_float, str: str}


def _parser_of(kind: type, meta: Mapping[str, Any]) -> Callable[[str], Any]:
    """What reads a value of `kind`, one of its words, or `auto` where the option takes it."""
    parse: Callable[[str], Any] = _PARSERS[kind]
    words, takes_auto = meta.get("words") or {}, bool(meta.get("auto"))

    def read(text: str) -> Any:
        if takes_auto and text.strip() in ("", AUTO):
            return _NOT_GIVEN
        if text in words:
            return words[text]
        try:
            return parse(text)
        except argparse.ArgumentTypeError as error:
            others = [*words, *([AUTO] if takes_auto else [])]
            raise argparse.ArgumentTypeError(
                str(error).replace(", got ", f" or {' or '.join(others)}, got ") if others else str(error)
            ) from None

    return read


class _Given(argparse.Action):
    """Takes a value over and remembers that it was given; passes over `auto`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values is not _NOT_GIVEN:
            setattr(namespace, self.dest, values)
            setattr(namespace, _NAMES, getattr(namespace, _NAMES, frozenset()) | {self.dest})


_NAMES = "names given"
"""Of the namespace; no option has blanks in its name."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def parser(cls: type, prog: str) -> argparse.ArgumentParser:
    """The command line of `cls`: one flag per option, grouped by kind in `--help`."""
    result = _Parser(
        prog=prog,
        description=cls.__doc__,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
        epilog="Precedence: default < size and preset (train) < --config file < flag. Exit codes: 0 done or "
        "paused, 64 usage, 65 data, 70 bug, 75 try again, 78 environment.",
    )
    result.add_argument(
        "--config", metavar="FILE", help="YAML file of options, or its text; flags win over it"
    )
    groups = {
        "input": result.add_argument_group(
            "inputs", "a reference file, STAGE/KEY, latest or none; default: what --inputs says"
        ),
        "semantic": result.add_argument_group("options", "part of the output's key"),
        "execution": result.add_argument_group(
            "execution", "recorded, not in the key: how the same output is made here"
        ),
        "environment": result.add_argument_group("environment", "neither recorded nor in the key"),
    }
    hints = get_type_hints(cls)
    for field in option_fields(cls):
        kind, meta = hints[field.name], field.metadata
        auto = meta.get("auto")
        default = f"auto: {auto}" if auto else shown(field.default)
        groups[meta["kind"]].add_argument(
            flag(field.name),
            action=_Given,
            type=_parser_of(kind, meta),
            default=field.default,
            nargs="?" if kind is bool else None,
            const=True if kind is bool else None,
            choices=_choices(meta) or None,
            metavar=None if meta["choices"] else _metavar(kind, meta["kind"]),
            help=(meta["help"] + f" (default: {default})" * (meta["kind"] != "input")).replace("%", "%%"),
        )
    return result


def _choices(meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """An option's choices as its parser reads them."""
    if not meta.get("auto") or not meta["choices"]:
        return tuple(meta["choices"])
    return (_NOT_GIVEN, *(c for c in meta["choices"] if c != AUTO))


def shown(value: Any) -> str:
    """A value as a person reads it, in `--help` or on a page."""
    return repr(value) if value == "" else spelled(value)


def spelled(value: Any) -> str:
    """A value as a flag takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(kind: type, role: str) -> str:
    if role == "input":
        return "REF"
    return {bool: "true|false", int: "N", float: "X"}.get(kind, "TEXT")


def load(cls: type[C], argv: Sequence[str], prog: str) -> C:
    """Build `cls` from its defaults, then the --config YAML file, then the flags.

    File entries go through the same parser as flags: same types, same errors. (YAML 1.1 reads
    `3e-4` as a string, so types must not be left to YAML.)

    Options that stand for others (`StageOptions.bundles`) come before the file.

    Raises:
        UsageError: an unknown option, a value of the wrong type, or values that contradict.
        SystemExit: `--help`, after printing it.
    """
    return load_given(cls, argv, prog)[0]


def load_given(cls: type[C], argv: Sequence[str], prog: str) -> tuple[C, frozenset[str]]:
    """`load`, and the names of the options that a bundle, the file or a flag gave."""
    command = parser(cls, prog)
    from_file = _config_flags(command, argv, prog)
    values, given = _expanded(cls, command, [*from_file, *argv])
    del values["config"]
    if values.get("executor_input"):
        _refuse_twice(from_file, argv)
    follows = getattr(cls, "left_open", None)
    if follows:
        values |= {name: value for name, value in follows(values).items() if name not in given}
    try:
        return cls(**values), given
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _expanded(
    cls: type, command: argparse.ArgumentParser, argv: list[str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """The values of `argv`, over those that bundles of them stand for; and what was given by either."""
    values, given = _parsed(cls, command, argv)
    bundles = getattr(cls, "bundles", None)
    before: list[str] = []
    for _ in range(2 if bundles else 0):  # a bundle may choose another one
        try:
            before = [f"{flag(k)}={spelled(v)}" for k, v in bundles(values).items()]  # type: ignore[misc]
        except ValueError as error:
            raise UsageError(str(error)) from error
        values, given = _parsed(cls, command, [*before, *argv])
    return values, given


def _parsed(
    cls: type, command: argparse.ArgumentParser, argv: list[str]
) -> tuple[dict[str, Any], frozenset[str]]:
    values = vars(command.parse_args(argv))
    given = values.pop(_NAMES, frozenset())
    for field in option_fields(cls):
        if values[field.name] is _NOT_GIVEN:  # argparse reads defaults that are texts
            values[field.name] = field.default
    return values, given


def _config_flags(command: argparse.ArgumentParser, argv: Sequence[str], prog: str) -> list[str]:
    """What --config of `argv` says, as flags."""
    pre = _Parser(prog=prog, add_help=False, allow_abbrev=False)
    pre.add_argument("--config")
    source = pre.parse_known_args(argv)[0].config
    flags = [f"{flag(k)}={spelled(v)}" for k, v in read_yaml(source).items()] if source else []
    if "--config" in (f.partition("=")[0] for f in flags):
        raise UsageError(f"{shown_source(source)}: one options file cannot name another (`config`)")
    if flags:  # by itself, so that an error names the file
        try:
            command.parse_args(flags)
        except UsageError as error:
            raise UsageError(f"{shown_source(source)}: {error}") from None
    return flags


def _refuse_twice(from_file: Sequence[str], argv: Sequence[str]) -> None:
    """In a pipeline every field of the run form comes as a flag, so it would silently win."""
    given = {a.partition("=")[0] for a in argv}
    twice = sorted({f.partition("=")[0] for f in from_file} & given)
    if twice:
        raise UsageError(
            f"--config names {', '.join(twice)}, which the pipeline itself sets; set it on the run form"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options that every stage takes; each stage's config derives from this."""

    @classmethod
    def bundles(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """Options that others of `values` stand for (a preset); they win over defaults only.

        Raises:
            ValueError: there is no such bundle.
        """
        return {}

    @classmethod
    def left_open(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """What options become that nobody gave, where it follows from others of `values`."""
        return {}

    store: str = opt(
        "runs/store",
        "where bytes live: a folder, file:///path or s3://bucket/prefix",
        kind="environment",
        form=False,
    )
    channel: str = opt(
        "dev",
        "whose pointers are read and moved: dev, demo, nightly ...",
        kind="environment",
        form=False,
    )
    endpoint: str = opt(
        "",
        "S3 server, http(s)://host[:port]; default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the secret's, "
        "else AWS",
        kind="environment",
        form=False,
    )
    scratch: str = opt(
        "",
        "folder on a local disk for work and cached inputs of an s3 store; default: YANMO_SCRATCH or the "
        "user's cache folder",
        kind="environment",
        form=False,
    )
    scratch_gib: float = opt(200.0, "cap of the scratch cache, GiB", kind="environment", form=False)
    single_writer: bool = opt(
        False,
        "I vouch that one run writes at a time: for an S3 server that ignores conditional writes",
        kind="environment",
        form=False,
    )
    inputs: str = opt(
        "latest",
        "inputs not given by their own flag: 'latest' (the channel's pointers) or a JSON file of "
        "input name -> reference",
        kind="environment",
        form=False,
    )
    pointer: str = opt(
        "",
        "pointer of the channel that success moves; default: the stage's name; 'none' moves none",
        kind="environment",
        form=False,
    )
    reference_out: str = opt(
        "", "file to write the main output's reference to (JSON)", kind="environment", form=False
    )
    executor_input: str = opt(
        "", "KFP's executor input JSON; pipelines pass it", kind="environment", form=False
    )
    run_id: str = opt("", "id of the pipeline run, for logs and metrics", kind="environment", form=False)
    force: bool = opt(False, "make the output again even if it is committed", kind="environment", form=False)
    metrics_port: int = opt(
        0, "TCP port of /metrics; 0 takes a free one, -1 serves none", kind="environment", form=False
    )
    log_level: str = opt(
        "info",
        "least severe message shown",
        kind="environment",
        form=False,
        choices=("debug", "info", "warning", "error"),
    )


def default_argv(argv: Sequence[str] | None) -> Sequence[str]:
    """`argv`, or the process's own arguments."""
    return sys.argv[1:] if argv is None else argv
