from yanmo.verse.poems import read_poem


def test_punctuation_and_line_breaks_divide_a_poem():
    poem = read_poem("床前明月光，疑是地上霜。\n举头望明月，\n低头思故乡。")
    assert poem.lines == ("床前明月光", "疑是地上霜", "举头望明月", "低头思故乡")
    assert poem.form == "五绝"
    assert poem.ends == (1, 2, 3)


def test_a_pause_and_quotation_marks_divide_no_line():
    poem = read_poem("对潇潇、暮雨洒江天，一番洗清秋。")
    assert poem.shape == (8, 5)
    assert read_poem("“问君能有几多愁？”").lines == ("问君能有几多愁",)


def test_unequal_lines_cut_texts_and_nothing_have_no_form():
    assert read_poem("明月。明月光。").form is None
    assert read_poem("床前明月光，疑是地上霜。举头望明月，低头思故乡。", whole=False).form is None
    assert read_poem("。，\n").lines == read_poem("").lines == ()
    assert read_poem("").form is None


def test_each_end_is_named_once_whatever_marks_follow():
    assert read_poem("明月？！\n\n青天。").ends == (0, 1)
