"""The stepper: a trace played in the browser, in three homes.

In a marimo app, make the widget once, in a cell that depends on no control, and give it new traces
from another; it keeps its step, lanes and scroll, and repaints without a jump::

    with app.setup:
        from vla.widgets import Stepper

    # cell 1: no controls here
    stepper = Stepper(first_trace, step=3)
    view = mo.ui.anywidget(stepper)
    view

    # cell 2: runs when a control changes
    stepper.show(trace)                  # or stepper.show(trace, step=3), or stepper.trace = trace

``view.value["step"]`` (also ``playing``, ``speed``, ``theme``, ``lanes``) is what the person did;
reading it makes the reading cell run at each change, at most once a second while playing.
``stepper.view()`` is the state for a link; ``Stepper(trace, **view)`` restores it.
In Jupyter, a cell that ends in ``Stepper(trace)``. As a file::

    save_html(trace, "memory.html", step=3, title="Two near-twins")
    stepper.save_html("memory.html")     # the view as it stands

All of them raise ``vla.errors.ArgumentError`` (a ``ValueError``) with a message for people.
``pack`` is the compact form that travels: a JSON-safe header and one float32 buffer.

In browser tests, ``[data-testid=stepper]`` carries ``data-step``, ``data-steps`` and
``data-playing``; a number is ``[data-testid=number][data-lane=vla][data-number=cosine]`` with its
full value in ``data-value``; a token is ``[data-testid=token][data-token="2"]``.
"""

from vla.widgets.html import save_html, to_html
from vla.widgets.pack import lane_ids, pack, unpack
from vla.widgets.stepper import Stepper

__all__ = ["Stepper", "lane_ids", "pack", "save_html", "to_html", "unpack"]
