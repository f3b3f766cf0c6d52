# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Why did this query fail?: Which stored pair answers, and which write spoils it?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(
    width="full",
    app_title="Why did this query fail?",
    css_file="lab.css",
    html_head_file="stability_head.html",
)

with app.setup:
    from html import escape

    import marimo as mo

    from vla.figures.theme import alt
    from vla.scene import page
    from vla.scene.blame import EMPTY, HINT, BlameSession


@app.cell
def _():
    session = BlameSession(mo.query_params().to_dict())
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
    keep = mo.ui.anywidget(session.keep)
    kept = mo.Html(keep.text)
    return keep, kept


@app.cell
def _(keep, session):
    session.keep.react(keep.value)
    return


@app.cell
def _(session):
    def _read(files):
        for file in files or ():
            session.load(file.name, file.contents)

    upload = mo.ui.file(
        filetypes=[".safetensors"], on_change=_read, label="Open a checkpoint file", max_size=2**26
    )
    return (upload,)


@app.cell
def _(session):
    def opener(name):
        return mo.ui.button(
            label=session.presets[name].title, on_click=lambda _: session.open(name)
        )

    scenes = mo.ui.dictionary({name: opener(name) for name in session.presets})
    return (scenes,)


@app.cell
def _(controls, session):
    session.react(controls.value)
    return


@app.cell
def _(get_turn, session):
    get_turn()
    _preset = session.presets.get(session.preset)
    _question = _preset.question if _preset else "Why did this query fail?"
    _seen = _preset.seen if _preset else "Each bar is one token's write; blue helps, orange hurts."
    _answer = _preset.answer if _preset else None
    mo.Html(page.heading(_question, page.said(_seen, _answer)))
    return


@app.cell
def _(get_turn, kept, session):
    get_turn()

    def _picture(figure, width):
        _shown = mo.as_html(figure)
        return page.figured(alt(figure), _shown, f"flex: {width}; min-width: 0")

    def _table(lines, first, word):
        names = [cell.name for cell in lines[0].cells]
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in [first, word, *names])
        rows = "".join(
            f'<tr><th scope="row">{escape(line.title)}</th><td>{escape(line.word)}</td>'
            + "".join(page.number(cell) for cell in line.cells)
            + (f'<td><a href="{escape(line.link)}"><u>step it</u></a></td>' if line.link else "")
            + "</tr>"
            for line in lines
        )
        return (
            f'<div class="numbers"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )

    if session.case is None:
        right = f'<p data-testid="verdict">{escape(EMPTY)}</p>'
    else:
        _answer, _writes = session.figures()
        _link = session.worst_link()
        _step = f' <a href="{escape(_link)}"><u>Open that write in the stepper.</u></a>'
        right = (
            f'<p><span data-testid="verdict">{escape(session.verdict())}</span>'
            f"{_step if _link else ''}</p>"
            '<div class="picture" style="display: flex; flex-wrap: wrap">'
            + _picture(_writes, "3 1 340px")
            + _picture(_answer, "1 1 230px")
            + "</div>"
            + f"{kept}<p>{escape(HINT)}</p>"
            + _table(session.writes(), "write", "what it is")
            + _table(session.rivals(), "memory run by", "says")
        )
    return (right,)


@app.cell
def _(left, right, upload):
    mo.Html(f'<div class="bench"><aside>{left}{upload}</aside><main>{right}</main></div>')
    return


@app.cell
def _(scenes, session):
    asked = ((session.presets[name].question, button) for name, button in scenes.items())
    mo.Html(page.others(asked))
    return


if __name__ == "__main__":
    app.run()
