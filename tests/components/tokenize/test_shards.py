import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.common.errors import DataError
from yanmo.formats.token_cache import open_tokens, read_index
from yanmo.tokenize.segmenter import Marks
from yanmo.tokenize.shards import FileTask, loss_spans, tokenize_file


@pytest.fixture
def job_of(tokenizer, tmp_path, commit_documents):
    """A job for given documents."""

    def job(documents, split="train", **more) -> FileTask:
        output = commit_documents(tmp_path / "store", [documents], documents)
        return FileTask(
            documents=output.paths(f"{more.pop('of', split)}-*.parquet")[0],
            split=split,
            tokenizer=tokenizer.path("tokenizer.json"),
            tokenizer_digest=tokenizer.content_digest,
            marks=Marks(0, 1),
            out=tmp_path,
            judged=more.pop("judged", 1),
            sentences=more.pop("sentences", 0),
            user=b"",
            **more,
        )

    return job


def test_documents_come_back_from_the_cache_as_they_went_in(job_of, segmenter, few):
    done = tokenize_file(job_of(few[:1500]))
    ((tokens, index),) = done.files
    ids, table = open_tokens(tokens).ids, read_index(index)
    assert done.judged == len(table) == 1500
    for document, offset, length in zip(
        few, table["offset"].to_pylist(), table["length"].to_pylist(), strict=False
    ):
        row = ids[offset : offset + length].tolist()
        assert (row[0], row[-1]) == (0, 1)
        assert segmenter.reference.decode(row[1:-1], skip_special_tokens=False) == document["text"]
    assert done.tokens.total() == len(ids)
    assert done.characters["诗"] == sum(
        sum(not c.isspace() for c in d["text"]) for d in few[:1500] if d["genre"] == "诗"
    )


def test_of_a_huge_document_the_beginning_is_checked(job_of, few, segmenter, monkeypatch):
    judged, judge = [], type(segmenter).judge
    monkeypatch.setattr(
        type(segmenter), "judge", lambda self, text, ids: judged.append(text) or judge(self, text, ids)
    )
    monkeypatch.setattr("yanmo.tokenize.shards._JUDGED_CHARACTERS", 1000)
    text = "".join(d["text"] for d in few)[:20_000]
    done = tokenize_file(job_of([few[0] | {"text": text}]))
    assert done.judged == 1 and judged == [text[:1000]]
    ids = open_tokens(done.files[0][0]).ids[1:-1].tolist()
    assert segmenter.reference.decode(ids, skip_special_tokens=False) == text


def test_large_input_is_cut_into_files_that_hold_the_same_tokens(job_of, few):
    whole = tokenize_file(job_of(few))
    one = open_tokens(whole.files[0][0]).ids.tolist()
    parts = tokenize_file(job_of(few, file_bytes=100_000))
    assert len(parts.files) > 2
    assert [i for tokens, _ in parts.files for i in open_tokens(tokens).ids.tolist()] == one
    for _, index in parts.files:
        table = read_index(index)
        assert table["offset"][0].as_py() == 0


def test_documents_of_another_split_are_refused(job_of, few):
    with pytest.raises(DataError, match=r"expected documents of split valid, found \['train'\]"):
        tokenize_file(job_of(few[:3], split="valid", of="train"))


def test_foreign_parquet_is_refused(job_of, few):
    job = job_of(few[:3])
    pq.write_table(pa.table({"text": ["春"]}), job.documents)
    with pytest.raises(DataError, match="expected schema documents version 1"):
        tokenize_file(job)


def test_documents_without_text_cost_two_tokens(job_of):
    done = tokenize_file(job_of([{"text": "", "genre": "诗"}, {"text": "春", "genre": "诗"}]))
    assert read_index(done.files[0][1])["length"].to_pylist() == [2, 3]
    assert done.characters["诗"] == 1


def test_spans_with_loss_follow_the_tokens(segmenter):
    text = "春眠𪚥不觉晓"
    ids, offsets, _ = segmenter.encode(pa.array([text] * 5), 0, 1)
    pieces = [segmenter.reference.decode([i], skip_special_tokens=False) for i in ids[1 : offsets[1] - 1]]
    kind = pa.list_(pa.list_(pa.int32(), 2))
    spans = pa.array([None, [[0, 6]], [[2, 3]], [], [[1, 2], [4, 5]]], kind)
    found = loss_spans(segmenter, spans, ids, offsets)
    assert found[0] is None
    assert found[1] == [[1, offsets[1]]]  # to the end of the text, <|eos|> included
    assert found[3] == []

    def text_of(row):
        return [
            segmenter.reference.decode(
                ids[offsets[row] + a : offsets[row] + b].tolist(), skip_special_tokens=False
            )
            for a, b in found[row]
        ]

    assert text_of(2) == ["𪚥"]
    assert [wanted in piece for wanted, piece in zip("眠觉", text_of(4), strict=True)] == [True, True]
    assert len(pieces) >= 6


def test_loss_spans_reach_the_cache(job_of):
    done = tokenize_file(job_of([{"text": "春眠不觉晓", "genre": "诗", "loss_spans": [[0, 5]]}]))
    table = read_index(done.files[0][1])
    assert table["loss_spans"].to_pylist() == [[[1, table["length"][0].as_py()]]]
