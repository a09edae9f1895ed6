"""The one look of all pictures: letters, grid, colours of series, a title above and the source of the numbers below."""

import os
import textwrap

import backend  # noqa: F401: sets matplotlib up
import matplotlib.pyplot as plt

WIDTH = 12.5  # inches; the same for all figures, so that their letters have one size on the page
DPI = 120
# Okabe and Ito's palette, then colours that can be told from it.
SERIES_COLOURS = ["#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#8c6d31", "#7f7f7f",
                  "#000000", "#9467bd", "#a6cc3f"]
SOFT = "#555555"


def style():
    plt.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                         "grid.linewidth": 0.35, "grid.color": "#bbbbbb", "axes.axisbelow": True,
                         "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
                         "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "hetbench", "hatch.linewidth": 0.7})


def stamp(figure, title, note):
    """Writes the title above all that a figure has, and below it where the numbers come from."""
    figure.canvas.draw()
    box, height = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_figheight()
    left, letters = box.x0 / figure.get_figwidth(), max(60, int(13.2 * (box.x1 - box.x0)))
    title, note = textwrap.fill(title, int(0.72 * letters)), textwrap.fill(note, int(1.15 * letters))
    figure.text(left, (box.y1 + 0.12) / height, title, fontsize=12, fontweight="bold", va="bottom", ha="left")
    figure.text(left, (box.y0 - 0.1) / height, note, fontsize=8, color=SOFT, va="top", ha="left")


def write(figure, path, dpi=DPI):
    """Writes a picture whole, or not at all; its kind is the name's ending. PNG have 256 colours, which is a third of the bytes."""
    path = str(path)
    ending = os.path.splitext(path)[1].lower()[1:]
    partial = f"{path}.{os.getpid()}.partial"
    meta = {"Date": None} if ending == "svg" else {"Software": None} if ending == "png" else None
    try:
        figure.savefig(partial, dpi=dpi, bbox_inches="tight", format=ending, metadata=meta)
        if ending == "png":
            reduce(partial)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
        plt.close(figure)


def reduce(path):
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, format="png", optimize=True)
