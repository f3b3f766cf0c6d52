# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Kernels: From how many tokens on does it pay, and how exact is it?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="Kernels",
    css_file="lab.css",
    html_head_file="stability_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.scene import page
    from vla.scene.kernels import KERNELS, KernelsSession


@app.cell
def _():
    session = KernelsSession(mo.query_params().to_dict())
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
        return mo.ui.button(label=KERNELS[name].title, on_click=lambda _: session.open(name))

    scenes = mo.ui.dictionary({name: opener(name) for name in KERNELS})
    return (scenes,)


@app.cell
def _(session):
    measure = mo.ui.button(label="Measure this machine", on_click=lambda _: session.measure())
    return (measure,)


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
    _preset = KERNELS.get(session.prepared)
    _question = _preset.question if _preset else "Your own choice: how do they compare?"
    _seen = _preset.seen if _preset else "A line a method; hover for repeats and source."
    _answer = session.answer() or None
    mo.Html(page.heading(_question, page.said(_seen, _answer)))
    return


@app.cell
def _(files, get_turn, job, measure, session, table):
    get_turn()
    _camera = {"toImageButtonOptions": {"scale": 2, "filename": session.file_name()}}
    _shown = mo.as_html(mo.ui.plotly(session.figure(), config=_camera))
    _met = {True: "met", False: "missed", None: "open"}
    _targets = "".join(
        f'<tr data-testid="target" data-met="{_met[each.met]}"><th scope="row">'
        f"{escape(each.wanted)}</th><td><b>{_met[each.met]}</b></td><td>{escape(each.measured)}"
        "</td></tr>"
        for each in session.targets()
    )
    _lacks = "".join(f"<li>{escape(line)}</li>" for line in session.missing())
    _decode = "".join(
        f'<li>{escape(name)}: <span data-testid="number" data-lane="{escape(name)}" '
        f'data-number="decode" data-value="{ms!r}">{ms:.3g} ms</span></li>'
        for name, ms in session.decoding()
    )
    _more = "".join(
        f"<details{state}><summary>{title}</summary>{body}</details>"
        for title, body, state in (
            (
                f"Targets on one H200: {sum(t.met is True for t in session.targets())} met, "
                f"{sum(t.met is False for t in session.targets())} missed",
                f"<table><tbody>{_targets}</tbody></table>",
                " open",
            ),
            ("One token at a time, batch 1, state carried", _decode and f"<ul>{_decode}</ul>", ""),
            ("What this record lacks", _lacks and f"<ul>{_lacks}</ul>", ""),
        )
        if body
    )
    right = (
        f'<div class="picture" role="figure" aria-label="{escape(session.words(), quote=True)}">'
        f"{_shown}</div>"
        f'<p class="standing" data-testid="standing">{escape(session.standing())}</p>'
        f'<div class="acts">{mo.as_html(measure)}{files}</div>{job}'
        f'<div class="numbers wraps">{_more}</div>{table}'
    )
    return (right,)


@app.cell
def _(left, right):
    mo.Html(f'<div class="bench"><aside>{left}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes):
    asked = ((KERNELS[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
