# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Claims: Which claims of the paper hold, and what decides each?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="Claims",
    css_file="lab.css",
    html_head_file="claims_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.scene import page
    from vla.scene.claims import VIEWS, ClaimsSession


@app.cell
def _():
    session = ClaimsSession(mo.query_params().to_dict())
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
    cards = mo.ui.anywidget(session.cards)
    listed = mo.Html(cards.text)
    return cards, listed


@app.cell
def _(session):
    live = mo.ui.anywidget(session.live)
    job = mo.Html(live.text)
    return job, live


@app.cell
def _(session):
    def opener(name):
        return mo.ui.button(label=VIEWS[name].title, on_click=lambda _: session.open(name))

    views = mo.ui.dictionary({name: opener(name) for name in VIEWS})
    return (views,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(cards, session):
    session.pressed(cards.value)
    return


@app.cell
def _(live, session):
    session.live.react(live.value)
    return


@app.cell
def _(get_turn, session):
    get_turn()
    _preset = VIEWS.get(session.preset)
    _question = _preset.question if _preset else "Your own choice of claims: do they hold?"
    _seen = _preset.seen if _preset else "Hollow marks and dashes are what the paper prints."
    _answer = _preset.answer if _preset else None
    mo.Html(page.heading(_question, page.said(_seen, _answer)))
    return


@app.cell
def _(get_turn, session):
    get_turn()
    standing = f'<p class="standing" data-testid="standing">{escape(session.standing())}</p>'
    return (standing,)


@app.cell
def _(job, left, listed, standing):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{standing}{job}{listed}</main></div>')
    return


@app.cell
def _(session, views):
    _whole = mo.download(
        data=lambda: session.report().encode(),
        filename="vla-claims.html",
        mimetype="text/html",
        label="The whole ledger as one page",
    )
    asked = ((VIEWS[name].question, button) for name, button in views.items())
    mo.Html(page.others(asked, "Other views", mo.as_html(_whole)))
    return


if __name__ == "__main__":
    app.run()
