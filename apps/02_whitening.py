# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Whitening: Where does a write go once a direction has been used?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Whitening: RLS as geometry", css_file="lab.css")

with app.setup:
    from html import escape

    import marimo as mo

    from vla.scene.whitening import WHITENING, WhiteningSession


@app.cell
def _():
    session = WhiteningSession(mo.query_params().to_dict())
    get_preset, set_preset = mo.state(session.preset)
    session.changed = lambda changed: set_preset(changed.preset)
    return get_preset, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.controls)
    left = mo.as_html(controls)
    return controls, left


@app.cell
def _(session):
    picture = mo.ui.anywidget(session.plane)
    right = mo.as_html(picture)
    return picture, right


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
def _(get_preset):
    _preset = WHITENING.get(get_preset())
    _question = _preset.question if _preset else "Your own keys: where does each write go?"
    _seen = _preset.seen if _preset else "The numbers under the picture are those of this step."
    _says = f" <b>Answer.</b> {escape(_preset.answer)}" if _preset else ""
    mo.Html(
        f'<header class="words"><a href="../">All apps</a><h1>{escape(_question)}</h1>'
        f"<p>{escape(_seen)}{_says} "
        "<b>Drag an arrow</b>, or select it and press ← →.</p></header>"
    )
    return


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = "".join(
        f"<li>{escape(WHITENING[name].question)} {button}</li>" for name, button in scenes.items()
    )
    title = '<p role="heading" aria-level="2">Other questions</p>'
    mo.Html(f'<section class="more">{title}<ul>{asked}</ul></section>')
    return


if __name__ == "__main__":
    app.run()
