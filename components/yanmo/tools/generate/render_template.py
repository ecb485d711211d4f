"""Runs a chat template that somebody else wrote, in a process of its own with little time and memory.

jinja's sandbox keeps a template from files and from Python; it may still loop for ever or make a text of
terabytes (`{{ 'a' * 10 ** 12 }}`), which nothing in the same process ends.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any, NoReturn

_CPU_SECONDS, _WALL_SECONDS, _MEMORY_BYTES = 5, 60.0, 512 << 20
_MOST_CHARACTERS = 1 << 20


def rendered(template: str, values: dict[str, Any]) -> str:
    """Return what a template makes of values.

    Raises:
        ValueError: it cannot be run, or asks for more than any chat template needs.
    """
    command = [sys.executable, "-m", "yanmo.tools.generate.render_template"]
    given = json.dumps({"template": template, "values": values})
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_WALL_SECONDS)
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):  # killed: it says nothing
        raise ValueError(_too_much()) from None
    if "text" not in answer:
        raise ValueError(answer["error"])
    return str(answer["text"])


def _too_much() -> str:
    return (
        f"it takes more than {_CPU_SECONDS} s, {_MEMORY_BYTES >> 20} MiB or {_MOST_CHARACTERS} characters "
        "for a short conversation"
    )


def _render(template: str, values: dict[str, Any]) -> dict[str, str]:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise ValueError(message)

    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        text = environment.from_string(template).render(**values)
    except MemoryError:
        return {"error": _too_much()}
    except Exception as error:  # whatever a template does
        return {"error": f"{error}"[:500]}
    return {"text": text} if len(text) <= _MOST_CHARACTERS else {"error": _too_much()}


if __name__ == "__main__":
    print(json.dumps(_render(**json.load(sys.stdin))))
