"""Boilerplate of Chinese web pages: copyright lines, navigation, sharing, editors' names.

The list is our own, written for pages as text extractors return them. It is matched line by line, and only
against lines of at most 60 characters: longer ones are prose that mentions such things."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 60
_PATTERNS = (
    r"版权所有|[©Ⓒ]|Copyright|All\s*Rights?\s*Reserved|[京沪粤浙苏鲁川]?ICP[备证]|公网安备",
    r"上一[篇页章条][：:]?|下一[篇页章条][：:]?|返回(?:首页|顶部|目录|列表)|当前位置[：:]|您(?:的|现在的|所在的)位置",
    r"(?:点击|扫码|扫描|长按|识别).{0,8}(?:二维码|关注|下载|查看|进入|阅读全文|更多)|阅读原文|查看更多|展开全文",
    r"责任编辑[：:]|责编[：:]|(?:本文)?(?:来源|编辑|作者|记者|通讯员)[：:].{0,20}$|转载请注明|未经.{0,10}(?:许可|授权)",
    r"分享到|收藏本[页站文]|加入收藏|设为首页|联系我们|关于我们|网站地图|友情链接|免责声明|用户协议|隐私政策|网站声明",
    r"(?:登录|注册)(?:/|／|后|即可|查看|账号)|发表评论|暂无评论|相关(?:阅读|文章|推荐|新闻|链接)|热门(?:推荐|文章|标签)",
    r"浏览(?:次数|量)[：:]?|阅读(?:次数|数|量)[：:]?\d*|点击(?:数|量|次数)[：:]|发布(?:时间|日期|于)[：:]|字号[：:]",
)
_LINE = re.compile("|".join(_PATTERNS), re.IGNORECASE)


def is_boilerplate(line: str) -> bool:
    """Return whether a line is boilerplate."""
    return len(line) <= _LONGEST and _LINE.search(line) is not None


def boilerplate_share(lines: Sequence[str]) -> float:
    """Share of the characters of `lines` that are in lines of boilerplate."""
    total = sum(map(len, lines))
    return sum(len(line) for line in lines if is_boilerplate(line)) / total if total else 0.0


def without_boilerplate(text: str) -> str:
    """`text` without its lines of boilerplate."""
    return "\n".join(line for line in text.split("\n") if not is_boilerplate(line.strip()))
