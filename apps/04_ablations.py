# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Ablations: What does each switch of the layer do, at once and after training?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="Ablations",
    css_file="lab.css",
    html_head_file="stability_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.figures.theme import alt
    from vla.scene import page
    from vla.scene.ablations import ABLATIONS, AblationsSession


@app.cell
def _():
    session = AblationsSession(mo.query_params().to_dict())
    get_turn, set_turn = mo.state(0)
    session.changed = lambda _: set_turn(lambda turn: turn + 1)
    return get_turn, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.controls)
    left = mo.Html(controls.text)
    return controls, left


@app.cell
def _(session):
    live = mo.ui.anywidget(session.live)
    job = mo.Html(live.text)
    return job, live


@app.cell
def _(session):
    keep = mo.ui.anywidget(session.keep)
    files = mo.Html(keep.text)
    return files, keep


@app.cell
def _(session):
    def opener(name):
        return mo.ui.button(label=ABLATIONS[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in ABLATIONS})
    return (scenes,)


@app.cell
def _(get_turn, session):
    get_turn()
    train = mo.ui.button(
        label="Train this layer here",
        on_click=lambda _: session.train(),
        disabled=session.live.running,
    )
    return (train,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(live, session):
    session.live.react(live.value)
    return


@app.cell
def _(keep, session):
    session.keep.react(keep.value)
    return


@app.cell
def _(get_turn, session):
    get_turn()
    _preset = ABLATIONS.get(session.preset)
    _question = _preset.question if _preset else "Your own layer: what do its switches do?"
    _seen = _preset.seen if _preset else "Dashed and hollow is the authors' setting."
    _answer = f'<span data-testid="answer">{escape(session.answer())}</span>'
    mo.Html(page.heading(_question, f"{escape(_seen)} <b>Answer.</b> {_answer}"))
    return


@app.cell
def _(files, get_turn, job, session, train):
    get_turn()

    def _picture(figure):
        _shown = mo.as_html(figure)
        return page.figured(alt(figure), _shown, "flex: 1 1 330px; min-width: 0")

    def _table(names, rows):
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
        return (
            f'<div class="numbers"><table><thead><tr><td></td>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )

    _cells = session.cells()
    _names = list(dict.fromkeys(cell.name for cell in _cells))
    _lanes = list(dict.fromkeys(cell.lane for cell in _cells))
    _at_once = "".join(
        f'<tr><th scope="row">{escape(lane)}</th>'
        + "".join(page.number(cell) for cell in _cells if cell.lane == lane)
        + "</tr>"
        for lane in _lanes
    )
    _trained = "".join(
        f'<tr data-testid="protocol"><th scope="row">{escape(row.name)}</th>'
        f"<td>{escape(row.mine)}</td><td>{escape(row.authors)}</td></tr>"
        for row in session.table()
    )
    right = (
        '<div class="picture" style="display: flex; flex-wrap: wrap">'
        + "".join(_picture(figure) for figure in session.figures())
        + f'</div><p data-testid="nearest">{escape(session.nearest())}</p>'
        + f'<div class="acts">{mo.as_html(train)}{files}</div>{job}'
        + _table(_names, _at_once)
        + (_table(["nearest recorded", "as run"], _trained) if _trained else "")
    )
    return (right,)


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((ABLATIONS[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
