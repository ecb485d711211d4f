"""kfp without its client of a cluster, which nothing here uses (cluster/kfp_api.py says why not).

`import kfp` imports `kfp.client`, and with it Kubernetes' own client: 1,100 modules, two thirds of its second
of CPU and 47 of its 82 MB, which `yanmo run` would hold as long as it trains (kfp 2.17, `kfp/__init__.py`).
kfp's own switch for it, the variable _KFP_RUNTIME, leaves out the compiler as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_CLIENT = "kfp.client"


@contextmanager
def without_client() -> Iterator[None]:
    """Whoever imports kfp first inside gets it without `kfp.Client`; `kfp.client` can be imported later."""
    stand_in = ModuleType(_CLIENT)
    stand_in.Client = None  # type: ignore[attr-defined]
    is_first = "kfp" not in sys.modules and sys.modules.setdefault(_CLIENT, stand_in) is stand_in
    try:
        yield
    finally:
        if is_first:
            del sys.modules[_CLIENT]
            for name in ("Client", "client"):
                vars(sys.modules.get("kfp", stand_in)).pop(name, None)
