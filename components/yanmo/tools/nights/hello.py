"""`yanmo nights hello`: sends a line to the chat that hears of nights, to see that it comes."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.errors import EnvironmentFault, ExitCode, StorageError, UsageError
from yanmo.nights.night import Row, Words
from yanmo.nights.settings import VARIABLES, webhook
from yanmo.nights.webhook import send
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.store.objects import ObjectStore
from yanmo.store.schema import utc_now


@dataclass(frozen=True, kw_only=True)
class HelloOptions(ToolOptions, group="hello"):
    """Send a line to the chat that hears of nights, and say how it answers.

    The address is a secret, and so no option: YANMO_WEBHOOK_URL, or webhook_url in the Secret
    yanmo-store (docs/night-pages.md).
    """

    channel: str = channel_opt("channel that the line names")


def run(store: ObjectStore, options: HelloOptions) -> int:
    try:
        to = webhook()
    except ValueError as error:
        raise UsageError(str(error)) from None
    if to is None:
        variable, file = VARIABLES["url"]
        raise EnvironmentFault(
            f"no chat is told of nights: set {variable}, or {file} in the Secret yanmo-store"
        )
    now = utc_now()
    words = Words("a line to see that lines come; no night has ended.", "测试消息，并无一夜结束。")
    row = Row(date=now[:10], run_id="hello", began=now, changed=now, state="begun", sentence=words)
    sent = send(to, options.channel, row, "")
    if not sent.is_sent:
        raise StorageError(f"{to.host} ({to.shape}): {sent.why}")
    print(f"{to.host} took a line in the shape of {to.shape}")
    return ExitCode.DONE
