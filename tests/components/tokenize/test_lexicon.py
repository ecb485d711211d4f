import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.tokenize.jieba_agreement import jieba_ends, token_ends
from yanmo.tokenize.lexicon import jieba_for, jieba_tokenizer, read_lexicon, user_lines, with_user_words
from yanmo.tokenize.vocabulary import Counts, choose, dictionary_segmenter


def test_total_counts_the_word_that_stands_twice_twice_as_jieba_does(lexicon):
    assert lexicon.total == 60_101_967
    assert sum(lexicon.frequency.values()) == lexicon.total - lexicon.frequency["B超"]
    assert len(lexicon.frequency) == 349_045


def test_frequencies_are_those_that_jieba_reads(lexicon):
    theirs = jieba_tokenizer()
    assert theirs.total == lexicon.total
    assert {w: f for w, f in theirs.FREQ.items() if f} == {w: f for w, f in lexicon.frequency.items() if f}


def test_words_have_two_characters_or_more_and_no_digit(lexicon):
    words = lexicon.words()
    assert len(words) > 330_000
    assert all(len(word) > 1 for word in words)
    assert not any(c.isdigit() and c.isascii() for word in words for c in word)


def test_unknown_word_scores_as_seen_once(lexicon):
    assert lexicon.scores(["绝无此词"]) == lexicon.scores(["𪚥"])
    assert lexicon.scores(["北京"]) > lexicon.scores(["绝无此词"])


def test_dictionary_of_another_form_is_refused(tmp_path):
    for text in ("北京 12\n", "北京 many ns\n", "北京 1 ns x\n"):
        (tmp_path / "dict.txt").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"dict\.txt: expected lines of `word frequency tag`"):
            read_lexicon(tmp_path / "dict.txt")


USER = """\ufeff云计算 5
李小福 2 nr
石墨烯

八一双鹿 3 nz
凯特琳 nz
5G 3
台中
科学院 0
《红楼梦》 10
""".encode()


@pytest.fixture(scope="module")
def user() -> bytes:
    return user_lines(USER, "mine.txt")


def test_user_words_have_the_frequencies_that_jieba_gives_them(lexicon, user, tmp_path):
    import jieba

    (tmp_path / "mine.txt").write_bytes(USER)
    theirs = jieba.Tokenizer()
    theirs.FREQ, theirs.total = dict(jieba_tokenizer().FREQ), jieba_tokenizer().total
    theirs.initialized = True
    theirs.load_userdict(str(tmp_path / "mine.txt"))
    ours = with_user_words(lexicon, user)
    assert ours.total == theirs.total
    words = ["云计算", "李小福", "石墨烯", "八一双鹿", "凯特琳", "5G", "台中", "科学院"]
    assert {w: ours.frequency[w] for w in words} == {w: theirs.FREQ[w] for w in words}
    assert ours.frequency["科学院"] == 0 and ours.frequency["石墨烯"] >= 1
    assert ours.user_words == set(words)


def test_whole_dictionary_with_user_words_cuts_as_jieba_with_them_does(lexicon, user):
    ours = dictionary_segmenter(with_user_words(lexicon, user))
    sentences = [
        "李小福是创新办主任也是云计算方面的专家",
        "凯特琳在中国科学院研究石墨烯",
        "台中用5G，八一双鹿",
    ]
    assert token_ends(ours, sentences) == jieba_ends(sentences, user)
    assert not [s for s in sentences if token_ends(ours, [s]) == jieba_ends([s])]


@pytest.mark.long
def test_jieba_with_the_part_of_its_dictionary_that_texts_touch_cuts_them_as_the_whole_one(corpus, user):
    texts = [d["text"] for d in corpus[::29]]
    texts += ["李小福在中国科学院研究石墨烯，台中用5G", "呵呵呵", "B超 T恤", "", "字"]
    for lines in (b"", user):
        part, whole = jieba_for(texts, lines), jieba_tokenizer(lines)
        assert len(part.FREQ) < 0.5 * len(whole.FREQ) and part.total == whole.total
        assert [part.lcut(t, HMM=False) for t in texts] == [whole.lcut(t, HMM=False) for t in texts]
    assert jieba_for(["清华"]).lcut("经济", HMM=False) == ["经", "济"], "only what the texts touch"


def test_user_words_of_the_text_are_pieces_before_all_others(lexicon, user):
    with_them = with_user_words(lexicon, user)
    words, counts = dictionary_segmenter(with_them), Counts()
    texts = pa.array(["石墨烯和5G。" + "清华大学的科学院" * 50])
    counts.add(pa.RecordBatch.from_arrays([texts, pa.array(["文"])], ["text", "genre"]), words)
    settings = {"min_character_count": 1, "character_share": 1.0, "dictionary_weight": 0.01}
    pieces = set(choose(counts, with_them, words, size=450, **settings).pieces)
    assert {"石墨烯", "5G", "清华大学"} <= pieces
    assert not {"凯特琳", "科学院", "台中"} & pieces


def test_word_that_jieba_can_never_find_is_named(lexicon, user, caplog):
    caplog.set_level("WARNING")
    with_user_words(lexicon, user)
    assert "1 of 9 words of the user dictionary" in caplog.text and "《红楼梦》" in caplog.text


def test_no_user_dictionary_changes_nothing(lexicon):
    assert with_user_words(lexicon, b"") is lexicon


JIEBAS_OWN = """# 自定义词典

云计算 5
李小福 2 nr
##########
# names of places
#1 3
Edu Trust认证 2000
创新办 3 i
iPhone 15 800 nz
云 计算 5
C# 40
"""


def test_words_with_blanks_and_remarks_are_left_out_as_jieba_finds_none_of_them(caplog):
    """Such as stand in the dictionary that jieba's own tests use."""
    caplog.set_level("WARNING")
    kept = user_lines(JIEBAS_OWN.encode(), "mine.txt")
    assert kept.decode().splitlines() == ["云计算 5", "李小福 2 nr", "#1 3", "创新办 3 i", "C# 40"]
    assert "mine.txt: 3 words with blanks left out" in caplog.text
    assert "line 8: Edu Trust认证 2000; line 10:" in caplog.text


@given(
    st.lists(
        st.builds(
            "{}{}{}".format,
            st.lists(
                st.sampled_from(["云计算", "Edu", "认证", "15", "#", "C#", "n"]), min_size=1, max_size=4
            ).map(" ".join),
            st.sampled_from(["", " 5", " 2000"]),
            st.sampled_from(["", " n", " nz"]),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=50, deadline=None)
def test_whatever_jieba_loads_is_taken_and_segments_a_text_as_jieba_alone_does(lines):
    ours = jieba_tokenizer.__wrapped__(user_lines("\n".join(lines).encode(), "mine.txt") or b"\n")
    theirs = jieba_tokenizer.__wrapped__("\n".join(lines).encode())
    text = "用云计算做Edu Trust认证，C#与iPhone 15及云 计算"
    assert ours.lcut(text, HMM=False) == theirs.lcut(text, HMM=False)


@pytest.mark.parametrize("line", ["云计算  5", "云计算\t5", "云  计算 5", "云计算 " + "9" * 16])
def test_line_that_is_not_in_jiebas_format_is_refused_by_its_number(line):
    with pytest.raises(DataError, match=r"mine\.txt:2: expected `word \[frequency\] \[tag\]`"):
        user_lines(f"好词\n{line}\n".encode(), "mine.txt")


@pytest.mark.parametrize("word", ["\0", "\0" * 16, "云\0计算", "云计算\x7f", "\x1b[31m云"])
def test_a_word_with_control_characters_is_refused_as_the_file_is_none_of_text(word):
    with pytest.raises(
        DataError, match=r"mine\.txt:2: expected `word .* no control characters; found '"
    ) as said:
        user_lines(f"好词\n{word} 5\n".encode(), "mine.txt")
    assert str(said.value).isprintable()


def test_a_byte_order_mark_and_line_ends_of_another_system_are_no_control_characters():
    assert user_lines("\ufeff好词 5\r\n云计算\r\n".encode(), "mine.txt").decode() == "好词 5\n云计算\n"


@pytest.mark.parametrize("length", [101, 100_000])
def test_a_line_that_is_no_word_is_refused_before_jieba_keeps_all_its_beginnings(length):
    with pytest.raises(
        DataError, match=rf"mine\.txt:2: a word of {length} characters, .*at most 100"
    ) as said:
        user_lines(f"好词\n{'长' * length}\n".encode(), "mine.txt")
    assert len(str(said.value)) < 200
    assert user_lines(f"{'长' * 100} {'9' * 15} nr\n".encode(), "mine.txt")


@pytest.mark.parametrize("rest", ["9" * 16, "9" * 100_000, "n" * 100_000])
def test_a_frequency_that_no_text_has_is_refused(rest):
    with pytest.raises(DataError, match=r"mine\.txt:1: expected .*at most 15 digits") as said:
        user_lines(f"好词 {rest}\n".encode(), "mine.txt")
    assert len(str(said.value)) < 300


def test_user_dictionary_in_another_encoding_is_refused():
    with pytest.raises(DataError, match=r"mine\.txt: a user dictionary must be UTF-8"):
        user_lines("云计算".encode("gb18030"), "mine.txt")
