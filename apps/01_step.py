# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Step the recurrence: what does one more token do to a memory?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Step the recurrence", css_file="step.css")

with app.setup:
    import html

    import marimo as mo

    from vla.scene import PRESETS
    from vla.scene.session import Session


@app.cell
def _():
    session = Session(mo.query_params().to_dict())
    get_preset, set_preset = mo.state(session.preset)
    session.changed = lambda changed: set_preset(changed.preset)
    return get_preset, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.panel)
    left = mo.as_html(controls)
    return controls, left


@app.cell
def _(session):
    picture = mo.ui.anywidget(session.stepper)
    right = mo.as_html(picture)
    return picture, right


@app.cell
def _(controls, session):
    controls.value
    session.react()
    return


@app.cell
def _(picture, session):
    session.walked(picture.value["step"], picture.value["lanes"])
    return


@app.cell
def _(get_preset):
    preset = PRESETS.get(get_preset() or "")
    question = preset.question if preset else "Your own scene: what does the next token do?"
    seen = preset.seen if preset else "Every knob keeps the place where you stand."
    mo.Html(
        f'<header class="words"><h1>{html.escape(question)}</h1>'
        f"<p>{html.escape(seen)} <b>Press the space bar</b> to play, an arrow key to step.</p></header>"
    )
    return


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


if __name__ == "__main__":
    app.run()
