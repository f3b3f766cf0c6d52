"""What the pages have alike: nothing a person typed becomes markup, numbers stay exact."""

from vla.scene.page import Cell, figured, heading, number, others, said

MARKUP = '<b onclick="x">&'
SAFE = "&lt;b onclick=&quot;x&quot;&gt;&amp;"


def test_a_number_is_shown_rounded_and_kept_exact() -> None:
    assert number(Cell("VLA", "‖S‖", 1 / 3)) == (
        '<td data-testid="number" data-lane="VLA" data-number="‖S‖" '
        'data-value="0.3333333333333333">0.333</td>'
    )


def test_words_are_never_markup() -> None:
    pieces = (
        heading(MARKUP, said(MARKUP, MARKUP)),
        number(Cell(MARKUP, MARKUP, 1.0)),
        figured(MARKUP, ""),
        others([(MARKUP, "")]),
    )
    for piece in pieces:
        assert SAFE in piece
        assert MARKUP not in piece


def test_an_answer_is_said_only_where_there_is_one() -> None:
    assert said("seen", None) == "seen"
    assert said("seen", "yes") == "seen <b>Answer.</b> yes"


def test_other_questions_come_with_their_buttons_and_a_last_entry() -> None:
    page = others([("Why?", "<button>"), ("How?", "<a>")], "Other views", "<i>")
    items = "<li>Why? <button></li><li>How? <a></li><li><i></li>"
    assert page == (
        '<section class="more"><p role="heading" aria-level="2">Other views</p>'
        f"<ul>{items}</ul></section>"
    )
