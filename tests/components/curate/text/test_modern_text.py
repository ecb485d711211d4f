"""Modern text stays what its author wrote: white space, quotation marks, code, emoji, what is simplified."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.chinese.code_spans import code_spans
from yanmo.curate.text.cleaning import Cleaning, clean
from yanmo.curate.text.mojibake import repair
from yanmo.curate.text.normalize import FORMS, normalize
from yanmo.curate.text.privacy import KINDS, mask

MODERN = FORMS["modern-1"]
CODE = Cleaning(code=True)
PAGE = """# 使用

若 a<b 且 c>d，占位符 <table> 是文字；`<slot name="x">` 与 ``a`b<i>`` 是代码。

```html
<!doctype html>
<div id="app">{{ msg }} &amp; &lt;</div>
<script setup>
import { ref } from 'vue'
</script>
```

| 列 | 值 |
|---|---|
| `#include <map>` | List<String> |

    if a<b and c>d:
\t\tprint("<b>")


~~~
<b>甲</b>
"""


def written(text: str) -> str:
    """A text as curate writes it in modern-1, without what is masked."""
    return normalize([clean(text, Cleaning(code=True, personal=())).text], MODERN).texts[0]


def test_a_page_without_faults_stays_as_it_is() -> None:
    assert written(PAGE) == PAGE.rstrip("\n")


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("<p>甲<b>乙</b></p>丙", "甲乙\n丙"),
        ("甲<b>乙", "甲<b>乙"),
        ('甲<a href="x">乙', "甲乙"),
        ("甲<br>乙<hr/>丙", "甲\n乙丙"),
        ("| 甲<br/>乙 | 丙 |", "| 甲 乙 | 丙 |"),
        ("<table><tr><th>型</th><th>长</th></tr><tr><td>整</td><td>4</td></tr></table>", "型\t长\n\n整\t4"),
        ("| <td>甲</td> | <td>乙</td> |", "| 甲 | 乙 |"),
        ("2<sup>7</sup>，H<sub>2</sub>O，x<sup>n+1</sup>", "2⁷，H₂O，xⁿ⁺¹"),
        ("-(2<sup>n - 1</sup>) x<sub>i+1</sub> x<sub>i</sub>", "-(2^(n - 1)) x_(i+1) x_i"),
        ("1<sup>st</sup>，脚注<sup>[1]</sup>，2<sup>n0</sup>", "1st，脚注[1]，2^n0"),
        ("<script setup>\nimport A from `x`\n</script>\n# 题\n<style>b {}</style>\n文", "# 题\n\n文"),
        ("甲<script>var a=1;</script>乙", "甲乙"),
        ("İİİ<script>var a=1;</SCRIPT>乙丙丁", "İİİ乙丙丁"),
        ("<script>没有结束\n<style>b {}</style>\n文", "<script>没有结束\n\n文"),
        ("用 <script> 和 </script> 标签", "用 <script> 和 </script> 标签"),
        ("# \\<script setup>\n\n`<script>` 与\n\n`</script>` 之间", None),
        ("| <code>a &vert; b\\|c</code> | &vert; |\na &vert; b", "| `a \\| b\\|c` | \\| |\na | b"),
        ("| `甲` | `乙`<br>`丙`</p><p>丁 |", "| `甲` | `乙` `丙`  丁 |"),
        ("> <p>甲<br>乙</p>\n> 丙", "> 甲\n> 乙\n> 丙"),
        ("<span>`a`</span><span class='b'>`b`</span>", "`a` `b`"),
        ("甲<img src=\"https://latex.codecogs.com/gif.latex?O(2%5En)'\" class='x'/>乙", "甲$O(2^n)'$乙"),
        ("用 <code>x &lt; y</code>", "用 `x < y`"),
        ("用 <code v-pre>{{ }}</code> 与 <code>T<em>x</em>\\[a\\]</code>", "用 `{{ }}` 与 `Tx[a]`"),
        ("aN<sup>b</sup>logN", "aN^(b)logN"),
        ("写作 &lt;b&gt;粗&lt;/b&gt; 和 &amp;nbsp;", "写作 <b>粗</b> 和 &nbsp;"),
        ("if a<b and c>d:", "if a<b and c>d:"),
        ("#include <map>\nMap<String, Table> t;", "#include <map>\nMap<String, Table> t;"),
        ("甲<!-- 注 -->乙", "甲乙"),
        ("<DIV CLASS='x'>甲</DIV>", "甲"),
    ],
)
def test_markup_goes_where_it_is_markup(raw: str, found: str | None) -> None:
    assert written(raw) == (raw if found is None else found)


def test_classical_text_keeps_what_only_looks_like_a_tag() -> None:
    assert clean("若a<b且c>d则，<b>甲</b>").text == "若a<b且c>d则，甲"
    damaged = "<spanstyle= font-family:FangSong_GB2312; >甲</span><ahref= mailto:x >乙"  # as in the corpus
    assert clean(damaged).text == "甲乙"


def test_a_page_that_explains_markup_is_not_taken_for_one() -> None:
    assert not clean(PAGE + "写 &lt;a href='x'&gt; 即可", CODE).has_markup
    assert not clean("占位符 <table> 与 <div> 是文字", CODE).has_markup


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("甲 \t\r\n乙\r丙", "甲\n乙\n丙"),
        ("\n\n甲\n\n\n\n\n乙\n\n", "甲\n\n\n乙"),
        ("　　段落  两个空格\t制表", "　　段落  两个空格\t制表"),
        ("a\u00a0b\u2003c", "a b c"),
        ("他说「好」“行”", "他说「好」“行”"),
        ("⻓安⻛⻰", "长安风龙"),
        ("\u200b零\u00ad宽\u200d字\x85符\x9d", "零宽字\n符"),
        ("🤦🏿\u200d♀️ 👨\u200d👩\u200d👧 🏴\U000e0067\U000e0062\U000e007f", None),
        ("表示覆盖，乾学院，藉口，他们说", None),
        ("國家圖書館，乾隆，藉口", "国家图书馆，乾隆，借口"),
        ("日本語の漢字は國と圖です\n这是中文，有國字", "日本語の漢字は國と圖です\n这是中文，有国字"),
        ("鲜の每日，這個", "鲜の每日，这个"),
        ("這個餸，羵羊", "这个餸，羵羊"),
    ],
)
def test_characters_and_white_space_that_mean_something_stay(raw: str, found: str | None) -> None:
    assert normalize([raw], MODERN).texts == [raw if found is None else found]


PIECES = [
    "  ",
    "\t",
    "\n",
    "\r\n",
    "　",
    "中",
    "國",
    "这",
    "覆",
    "の",
    "は",
    "a<b",
    "<p>",
    "</p>",
    "`",
    "```\n",
    "&lt;",
]
PIECES += ["\u200b", "\u200d", "🤦", "⻓", "\xa0", "|", "e\u0301", "\x00", "「"]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from(PIECES)).map("".join), max_size=4))
def test_written_again_nothing_changes_and_texts_do_not_touch_each_other(texts: list[str]) -> None:
    found = normalize(texts, MODERN)
    assert found.texts == [normalize([text], MODERN).texts[0] for text in texts]
    assert normalize(found.texts, MODERN).texts == found.texts
    for text in found.texts:
        assert not re.search(r"[ \t\u3000]\n|\n{4}|\r|\A\n|\n\Z", text)
        assert unicodedata.is_normalized("NFC", text)
    assert found.characters.tolist() == [len("".join(text.split())) for text in found.texts]


PLAIN = st.text(
    st.sampled_from("的一是在不了有和人这中大为上个国我以要他abc ()[]*#.,，。：“”「」1=\n"), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_a_text_without_faults_comes_out_as_it_is(text: str) -> None:
    text = re.sub(r"[ ]+(?=\n|\Z)", "", text).strip("\n")
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    assert written(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:pingcap/docs.git 与 user@1000.service",
        "写 a@example.com 或 b@mail.example.org，@example.com 结尾",
        "见 https://x.cn/13800138000/a@b.cn 一页",
        "提交 3f13800138000a 与 v1.13800138000",
        "运行 `tel 13800138000` 即可",
    ],
)
def test_what_is_nobodys_is_not_masked(text: str) -> None:
    assert mask(text, KINDS, code=True) == (text, ())


def test_documentation_of_code_is_left_alone_and_prose_is_not() -> None:
    assert mask("写信 a@b.cn\n```\nx\n```", KINDS, code=True)[1] == ()
    assert mask("写信 a@b.cn 或 13800138000", KINDS, code=True)[0] == "写信 （邮箱） 或 （电话）"


@pytest.mark.parametrize(
    "line", ["狼藉 慰藉 藉口 蘊藉", "龃龉 觊觎 饕餮 魍魉 貔貅", "皴擦 氤氲 旖旎 缱绻 蹀躞"]
)
def test_rare_words_are_not_taken_for_garbled_text(line: str) -> None:
    assert repair(line) == line


@pytest.mark.parametrize(
    "text",
    [
        *("`" * 60_000, "```\n" * 20_000, "<b" * 40_000, "a`b" * 30_000, "http://" * 20_000),
        *("    a\n\n" * 20_000, "\n" * 100_000, " " * 200_000 + "x", "~~~" * 30_000, "<p>" * 30_000),
        *("|<br>" * 30_000, "http://a.cn 13800138000 " * 20_000),
    ],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    mask(clean(text, CODE).text, KINDS, code=True)
    code_spans(text)
    normalize([text], MODERN)
    assert time.process_time() - start < 3.0
