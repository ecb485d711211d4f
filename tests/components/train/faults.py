"""Faults for trainings under test: a loss that is not finite for some rows, a micro batch that does not fit.

Inside the test's process `poison` and `small_memory` patch the loss; for the workers of a real stage
`install` writes a `sitecustomize.py` that does the same in every Python process started with that folder on
PYTHONPATH. The product has no hooks for this.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
from pathlib import Path

import torch

from yanmo.formats.token_cache import TokenCache
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.config import TrainConfig
from yanmo.train.data import NO_TARGET, Samples

MODULE = "yanmo.train.backends.loss_module"

_SITE = """
import importlib.abc, importlib.util, sys
sys.path.append({tests!r})

class AfterImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        plain = spec.loader.exec_module
        def execute(module):
            plain(module)
            import faults
            {call}
        spec.loader.exec_module = execute
        return spec

sys.meta_path.insert(0, AfterImport())
"""


def samples_of(store: Path, config: dict) -> Samples:
    """The training rows of the store's newest token cache under these options."""
    opened = open_store(str(store))
    cache = TokenCache.open(open_reference(opened, read_pointer(opened, "dev", "tokenize")))
    options = TrainConfig(**config)
    return Samples(
        cache,
        packing=options.packing_plan,
        seed=options.seed,
        tag_share=options.tag_share,
        pad=cache.special.pad,
    )


def checksums(ids_BT: torch.Tensor) -> list[int]:
    """A number per row that tells it from others."""
    weights = torch.arange(1, ids_BT.shape[1] + 1)
    return (ids_BT.cpu() * weights).sum(1).tolist()


def rows_of(samples: Samples, wanted: list[int]) -> list[int]:
    """The checksums of these samples' rows."""
    return [checksums(torch.from_numpy(samples.batch(n, 1).ids_BT))[0] for n in wanted]


def silence(sample: int, setattr=setattr) -> None:
    """Take the targets from the batch that begins with this sample, as where chats are cut before answers."""
    plain = Samples._make

    def make(self, first, count):
        batch = plain(self, first, count)
        if first == sample:
            batch.targets_BT.fill(NO_TARGET)
        return batch

    setattr(Samples, "_make", make)


def poison(rows: list[int], setattr=setattr) -> None:
    """Make the loss of every micro batch that holds one of these rows NaN."""
    import yanmo.train.backends.loss_module as module

    plain = module.LossModule.forward

    def forward(self, ids_BT, *rest):
        loss = plain(self, ids_BT, *rest)
        return loss * float("nan") if set(checksums(ids_BT)) & set(rows) else loss

    setattr(module.LossModule, "forward", forward)


def small_memory(most_rows: int, setattr=setattr) -> None:
    """Make every micro batch of more rows run out of memory."""
    import yanmo.train.backends.loss_module as module

    plain = module.LossModule.forward

    def forward(self, ids_BT, *rest):
        if len(ids_BT) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(self, ids_BT, *rest)

    setattr(module.LossModule, "forward", forward)


def at_forward(number: int, rank: int, do, setattr=setattr) -> None:
    """Call `do` in one rank, before its forward of that number, from 1."""
    import os

    import yanmo.train.backends.loss_module as module

    plain, calls = module.LossModule.forward, []

    def forward(self, ids_BT, *rest):
        calls.append(1)
        if len(calls) == number and os.environ.get("RANK") == str(rank):
            do()
        return plain(self, ids_BT, *rest)

    setattr(module.LossModule, "forward", forward)


def raise_error() -> None:
    """As a bug does."""
    raise ZeroDivisionError("the third forward\nof this rank")


def need_too_much() -> None:
    """Ask for more memory than the system's limit for this process leaves."""
    import resource

    status = Path("/proc/self/status").read_text(encoding="ascii")
    used = int(status.partition("VmSize:")[2].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26), resource.RLIM_INFINITY))
    torch.ones(1 << 28)


def refuse_import(name: str) -> None:
    """Let nothing import a module from now on: for what a training must do without."""

    class Refuse(importlib.abc.MetaPathFinder):
        def find_spec(self, found, path, target=None):
            if found == name:
                raise RuntimeError(f"{name} is imported")

    assert name not in sys.modules, f"{name} was imported before"
    sys.meta_path.insert(0, Refuse())


def record_rows(path: Path) -> None:
    """Append what each rank trains on to `path`.<rank>: lines of [first sample, samples, [document ids]]."""
    import os

    from yanmo.train import data

    batch, rows = data.Samples.batch, data.Batch.rows
    origin = {}

    def recorded_batch(self, first, count):
        made = batch(self, first, count)
        origin[id(made)] = (self, first, made)
        return made

    def recorded_rows(self, begin, end):
        samples, first, _ = origin[id(self)]
        line = [first + begin, end - begin, samples.document_ids(first + begin, end - begin)]
        with open(f"{path}.{os.environ['RANK']}", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return rows(self, begin, end)

    data.Samples.batch, data.Batch.rows = recorded_batch, recorded_rows


def install(folder: Path, call: str) -> str:
    """Write a sitecustomize that calls `call` (such as `faults.small_memory(2)`); returns its folder."""
    folder.mkdir(exist_ok=True)
    tests = str(Path(__file__).parent)
    text = _SITE.format(tests=tests, module=MODULE, call=call)
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    return str(folder)
