# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Whitening: Where does a write go once a direction has been used?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Whitening: RLS as geometry", css_file="lab.css")

with app.setup:
    import marimo as mo

    from vla.scene import page
    from vla.scene.whitening import WHITENING, WhiteningSession


@app.cell
def _():
    session = WhiteningSession(mo.query_params().to_dict())
    get_story, set_story = mo.state(session.story)
    session.changed = lambda changed: set_story(changed.story)
    return get_story, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.controls)
    left = mo.Html(controls.text)
    return controls, left


@app.cell
def _(session):
    picture = mo.ui.anywidget(session.plane)
    right = mo.Html(picture.text)
    return picture, right


@app.cell
def _(session):
    chart = mo.Html(mo.ui.anywidget(session.heatmap).text)
    return (chart,)


@app.cell
def _(session):
    def opener(name):
        return mo.ui.button(label=WHITENING[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in WHITENING})
    return (scenes,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(picture, session):
    session.moved(picture.value)
    return


@app.cell
def _(get_story):
    _name, _show = get_story()
    _keys = (
        "Your own keys: where does each write go?",
        "The numbers under the picture are those of this step.",
    )
    _cells = (
        "Your own map: where is enough recalled?",
        "Every number is the end of one trace over these pairs.",
    )
    _own = {"plane": _keys, "space": _keys, "map": _cells}
    _preset = WHITENING.get(_name)
    _question = _preset.question if _preset else _own[_show][0]
    _seen = _preset.seen if _preset else _own[_show][1]
    _says = page.said(_seen, _preset.answer if _preset else None)
    _act = {
        "plane": "<b>Drag an arrow</b>, or select it and press ← →.",
        "space": "<b>Drag an arrow</b>, or beside one to turn the picture.",
        "map": "<b>Press a cell</b> to step its trace.",
    }[_show]
    mo.Html(page.heading(_question, f"{_says} {_act}"))
    return


@app.cell
def _(chart, left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}{chart}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((WHITENING[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
