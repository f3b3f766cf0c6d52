# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Step the recurrence: What does one more token do to a memory?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="Step the recurrence", css_file="lab.css")

with app.setup:
    from html import escape

    import marimo as mo

    from vla.scene import PRESETS, page
    from vla.scene.session import Session


@app.cell
def _():
    session = Session(mo.query_params().to_dict())
    get_story, set_story = mo.state(session.story)
    session.changed = lambda changed: set_story(changed.story)
    return get_story, session


@app.cell
def _(session):
    controls = mo.ui.anywidget(session.panel)
    left = mo.Html(controls.text)
    return controls, left


@app.cell
def _(session):
    picture = mo.ui.anywidget(session.stepper)
    right = mo.Html(picture.text)
    return picture, right


@app.cell
def _(session):
    def opener(name):
        return mo.ui.button(label=PRESETS[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in PRESETS})
    return (scenes,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(picture, session):
    session.walked(picture.value["step"], picture.value["lanes"])
    return


@app.cell
def _(get_story):
    _name, _at_end = get_story()
    _preset = PRESETS.get(_name)
    _question = _preset.question if _preset else "Your own scene: what does the next token do?"
    _seen = _preset.seen if _preset else "Turn any knob: place and seed stay."
    _answer = _preset.answer if _preset else "The last token. Turn a knob and compare."
    _says = (
        f"<b>Answer.</b> {escape(_answer)}"
        if _at_end
        else f"{escape(_seen)} <b>Press the space bar</b> or Play; the arrow keys step."
    )
    mo.Html(page.heading(_question, _says))
    return


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((PRESETS[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
