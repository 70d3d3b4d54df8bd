import pytest

from antiphon.exceptions import InputError
from antiphon.ranking.questions import (
    Answer,
    Question,
    check_judgements,
    judgements_of,
    read_qrels,
    read_questions,
    select_questions,
)

HEADER = "question_id\tquestion\tcandidate_id\tsentence\tlabel\n"
WIKIQA = """\
QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel
Q1\thow are caves formed?\tD1\tCave\tD1-0\tA cave .\t0
Q1\thow are caves formed?\tD1\tCave\tD1-1\tBy water .\t1
"""
QA_PAIRS = """\
<QApairs id='32.1'>
<question>
Who\twrote\tHamlet\t?
WP\tVBD\tNNP\t.
</question>
<positive>
Shakespeare\twrote\tit
NNP\tVBD\tPRP
</positive>
<negative>
It\tis\tlong
PRP\tVBZ\tJJ
</negative>
</QApairs>
<QApairs id='32.2'>
<question>
Why\t?
WRB\t.
</question>
</QApairs>
"""


def read(tmp_path, text, **options):
    path = tmp_path / "questions"
    path.write_text(text)
    return read_questions(path, lambda message: None, **options)


def test_a_table_is_read_by_its_header_and_rows_of_a_question_need_not_stand_together(tmp_path):
    text = HEADER + "1\twho ?\t1-0\tme\t1\n2\twhy ?\t2-0\tso\t0\n1\twho ?\t1-1\tyou\t0\n"
    assert read(tmp_path, text) == [
        Question("1", "who ?", (Answer("1-0", "me", 1), Answer("1-1", "you", 0))),
        Question("2", "why ?", (Answer("2-0", "so", 0),)),
    ]


def test_wikiqa_as_published_is_read(tmp_path):
    (question,) = read(tmp_path, WIKIQA, labelled=True)
    assert question == Question(
        "Q1", "how are caves formed?", (Answer("D1-0", "A cave .", 0), Answer("D1-1", "By water .", 1))
    )


def test_qa_pairs_are_numbered_and_questions_without_candidates_left_out_aloud(tmp_path):
    path = tmp_path / "test.xml"
    path.write_text(QA_PAIRS)
    said = []
    (question,) = read_questions(path, said.append)
    answers = (Answer("32.1-0", "Shakespeare wrote it", 1), Answer("32.1-1", "It is long", 0))
    assert question == Question("32.1", "Who wrote Hamlet ?", answers)
    assert said == [f"{path}: 1 question without candidates left out"]


def test_a_file_without_labels_can_be_ranked_but_not_learnt_from(tmp_path):
    text = "question_id\tquestion\tcandidate_id\tsentence\n1\twho ?\t1-0\tme\n"
    assert read(tmp_path, text)[0].answers[0].label is None
    with pytest.raises(InputError, match="no labels, expected a column of 0 and 1"):
        read(tmp_path, text, labelled=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1\twho ?\t1-0\tme\t2\n", r":2: label '2', expected 0 or 1"),
        ("1\twho ?\t1-0\tme\tyes\n", r":2: label 'yes', expected 0 or 1"),
        ("1\twho ?\t1-0\tme\t1\n1\twho ?\t1-0\tyou\t0\n", r":3: candidate 1-0 of question 1 appears twice"),
        ("1\twho ?\t1-0\tme\t1\n1\twhy ?\t1-1\tyou\t0\n", r":3: question 1 had another text before"),
        ("1\twho ?\t1-0\tme\n", r":2: 4 columns, expected 5"),
        ("1\twho ?\t\tme\t1\n", r":2: candidate id '', expected one word"),
        ("1 2\twho ?\t1-0\tme\t1\n", r":2: question id '1 2', expected one word"),
        ("", r"no questions, expected a first line of question_id"),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_line(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, HEADER + rows)


def test_an_unknown_header_is_refused(tmp_path):
    with pytest.raises(InputError, match=r":1: 'who\\twhat', expected a first line of question_id"):
        read(tmp_path, "who\twhat\n")


def test_question_sets_go_by_labels():
    def question(id, *labels):
        return Question(id, "?", tuple(Answer(str(n), "", label) for n, label in enumerate(labels)))

    questions = [question("wrong", 0, 0), question("right", 1, 1), question("both", 0, 1)]
    sets = {which: [q.id for q in select_questions(questions, which)] for which in ("all", "answerable", "mixed")}
    assert sets == {"all": ["wrong", "right", "both"], "answerable": ["right", "both"], "mixed": ["both"]}
    assert judgements_of(questions)["both"] == {"0": 0, "1": 1}


def test_qrels_are_read_and_checked(tmp_path):
    path = tmp_path / "qrels"
    path.write_text("1 0 1-0 1\n1 0 1-1 0\n\n2 0 2-0 1\n")
    judged = read_qrels(path)
    assert judged == {"1": {"1-0": 1, "1-1": 0}, "2": {"2-0": 1}}
    with pytest.raises(InputError, match="judges none of the 1 questions"):
        check_judgements(judged, [Question("3", "?", ())], path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1-0 1\n", ":1: 3 columns, expected question 0 candidate label"),
        ("1 0 1-0 3\n", ":1: label '3', expected 0 or 1"),
        ("1 0 1-0 1\n1 0 1-0 0\n", ":2: candidate 1-0 of question 1 appears twice"),
        ("\n", "no judgements"),
    ],
)
def test_damaged_qrels_are_refused(tmp_path, text, message):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(InputError, match=message):
        read_qrels(tmp_path / "qrels")
