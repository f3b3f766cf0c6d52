# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""MQAR sweeps: What does each model recall, on paper and here?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="MQAR sweeps",
    css_file="lab.css",
    html_head_file="stability_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.figures.theme import alt
    from vla.scene import page
    from vla.scene.sweeps import SWEEPS, SweepsSession


@app.cell
def _():
    session = SweepsSession(mo.query_params().to_dict())
    get_turn, set_turn = mo.state(0)
    session.figure()
    get_drawing, set_drawing = mo.state(session.drawings)

    def changed(_):
        session.figure()
        if session.drawings != get_drawing():
            set_drawing(session.drawings)
        set_turn(lambda turn: turn + 1)

    session.changed = changed
    return get_drawing, get_turn, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.controls)
    left = mo.Html(controls.text)
    return controls, left


@app.cell
def _(session):
    sheet = mo.ui.anywidget(session.sheet)
    table = mo.Html(sheet.text)
    return sheet, table


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
        return mo.ui.button(label=SWEEPS[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in SWEEPS})
    return (scenes,)


@app.cell
def _(get_turn, session):
    get_turn()
    _usable = session.missing() and not session.live.running
    acts = mo.ui.dictionary(
        {
            "run": mo.ui.button(
                label=session.offer(),
                on_click=lambda _: session.run(),
                disabled=not _usable,
            ),
            "price": mo.ui.button(
                label="What would that take here?",
                on_click=lambda _: session.price(),
                disabled=not _usable,
            ),
        }
    )
    return (acts,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(session, sheet):
    session.sorted(sheet.value)
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
    _preset = SWEEPS.get(session.prepared)
    _question = _preset.question if _preset else "Your own choice of runs: what do they recall?"
    _seen = _preset.seen if _preset else "Hollow and dashed is what was published."
    _answer = session.answer() or None
    mo.Html(page.heading(_question, page.said(_seen, _answer)))
    return


@app.cell
def _(get_drawing, session):
    get_drawing()
    picture = mo.ui.plotly(
        session.figure(),
        config={"toImageButtonOptions": {"scale": 2, "filename": session.file()}},
    )
    return (picture,)


@app.cell
def _(picture, session):
    session.clicked(picture.value or [])
    return


@app.cell
def _(acts, files, get_turn, job, picture, session, table):
    get_turn()

    def figured(figure, shown):
        return page.figured(alt(figure), mo.as_html(shown))

    _curves = session.learning()
    # Without a value it is a plain output: its element stays and plotly redraws in place.
    _second = figured(_curves, _curves) if _curves else ""
    _hint = "" if _curves else "Click a point, or tick a row below, to see how it was learned."
    _rows = "".join(
        f'<tr><th scope="row">{escape(each.lane)}</th>'
        + "".join(
            f'<td data-testid="number" data-lane="{escape(each.lane)}" data-number="{name}" '
            f'data-value="{value!r}">{value:.3f}</td>'
            for name, value in each.values.items()
        )
        + "</tr>"
        for each in session.beside()
    )
    _beside = (
        '<details class="numbers"><summary>Published numbers beside ours</summary><table><thead>'
        '<tr><td></td><th scope="col">published</th><th scope="col">here</th>'
        f'<th scope="col">apart</th></tr></thead><tbody>{_rows}</tbody></table></details>'
        if _rows
        else ""
    )
    right = (
        f'<div class="picture two">{figured(session.figure(), picture)}{_second}</div>'
        f'<p class="standing" data-testid="standing">{escape(session.standing())} {_hint}</p>'
        f'<div class="acts">{mo.as_html(acts["run"])}{mo.as_html(acts["price"])}{files}</div>'
        f"{job}{_beside}{table}"
    )
    return (right,)


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((SWEEPS[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
