# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Stability: Does the memory stay bounded, and what bounds it?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="Stability",
    css_file="lab.css",
    html_head_file="stability_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.figures.theme import alt
    from vla.scene import page
    from vla.scene.stability import STABILITY, StabilitySession


@app.cell
def _():
    session = StabilitySession(mo.query_params().to_dict())
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
    def opener(name):
        return mo.ui.button(label=STABILITY[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in STABILITY})
    return (scenes,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(get_turn, session):
    get_turn()
    _preset = STABILITY.get(session.preset)
    _question = _preset.question if _preset else "Your own run: what stays bounded?"
    _seen = _preset.seen if _preset else "The numbers under the picture are those of the last step."
    _answer = _preset.answer if _preset else None
    mo.Html(page.heading(_question, page.said(_seen, _answer)))
    return


@app.cell
def _(get_turn, session):
    get_turn()
    _figure = session.figure()
    _names = list(dict.fromkeys(cell.name for cell in session.cells()))
    _lanes = list(dict.fromkeys(cell.lane for cell in session.cells()))
    _values = {(cell.lane, cell.name): cell for cell in session.cells()}

    def _cell(lane, name):
        known = _values.get((lane, name))
        return page.number(known) if known else "<td>–</td>"

    _head = "".join(f'<th scope="col">{escape(name)}</th>' for name in _names)
    _body = "".join(
        f'<tr><th scope="row">{escape(lane)}</th>'
        + "".join(_cell(lane, name) for name in _names)
        + "</tr>"
        for lane in _lanes
    )
    right = (
        f"{page.figured(alt(_figure), mo.as_html(_figure))}"
        f'<div class="numbers"><table><thead><tr><td></td>{_head}</tr></thead>'
        f"<tbody>{_body}</tbody></table></div>"
    )
    return (right,)


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((STABILITY[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
