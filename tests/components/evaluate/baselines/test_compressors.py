import lzma
import random

import pytest

from yanmo.evaluate.baselines.compressors import added_by_xz


def whole(text):
    return len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def chinese(seed, number):
    draw = random.Random(seed)
    words = ["明月", "青天", "不知", "天上", "宫阙", "今夕", "何年", "乘风", "归去", "琼楼", "玉宇", "。\n"]
    return "".join(draw.choice(words) for _ in range(number)).encode()


@pytest.mark.long
def test_forked_sizes_are_those_of_whole_runs_of_xz():
    prefix = chinese(0, 60_000)  # 350 kB, several of the pieces that are fed at a time
    texts = [chinese(1, 3_000), "未曾见过之字".encode(), b"", chinese(2, 20_000)]
    assert added_by_xz(prefix, texts) == [whole(prefix + text) - whole(prefix) for text in texts]


def test_text_seen_before_costs_almost_nothing():
    prefix = chinese(3, 20_000)
    again, other = added_by_xz(prefix, [prefix[-6_000:], chinese(4, 2_000)])
    assert again < 80 < other
