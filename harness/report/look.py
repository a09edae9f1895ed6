"""The one look of all pictures: letters, grid, colours of series, a title above and the source of the numbers below."""

import os
import textwrap

import backend  # noqa: F401: sets matplotlib up
import matplotlib.pyplot as plt
import numpy
from matplotlib.patches import Patch

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


def letters_on(colour):
    """Returns the colour of letters on a bar: white on dark ones."""
    red, green, blue = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 115 else "black"


def stamp(figure, title, note):
    """Writes the title above all that a figure has, and below it where the numbers come from."""
    figure.canvas.draw()
    box, height = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_figheight()
    left, letters = box.x0 / figure.get_figwidth(), max(60, int(13.2 * (box.x1 - box.x0)))
    title, note = textwrap.fill(title, int(0.72 * letters)), textwrap.fill(note, int(1.15 * letters))
    figure.text(left, (box.y1 + 0.12) / height, title, fontsize=12, fontweight="bold", va="bottom", ha="left")
    figure.text(left, (box.y0 - 0.1) / height, note, fontsize=8, color=SOFT, va="top", ha="left")


def name_ticks(ax, xs, names):
    """Names ticks of the x axis, aslant where the names would run into each other."""
    fit = 0.07 * sum(max(map(len, n.split("\n"))) + 1 for n in names) < ax.get_position().width * ax.figure.get_figwidth()
    ax.set_xticks(xs, names, **({} if fit else {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}))


def rows_of(handles, points, inches):
    """Splits a legend into rows that are no wider than so many inches."""
    rows, left = [[]], inches
    for handle in handles:
        width = (0.5 + 0.078 * len(handle.get_label())) * points / 9.5
        if rows[-1] and width > left:
            rows.append([])
            left = inches
        rows[-1].append(handle)
        left -= width
    return rows


def legend(figure, handles, below=False, points=9.5, heading="", drop=0):
    """Draws a legend that reads row by row, above the figure or below it. heading: a bold word before the first row. drop: rows that stand
    above this legend. Returns the number of rows."""
    step = 0.0235 * points / figure.get_figheight()
    first = Patch(alpha=0, label=heading)
    rows = rows_of(handles, points, figure.get_figwidth() - 0.8 - (0.1 * len(heading) if heading else 0))
    for i, row in enumerate(rows):
        y = -(drop + i) * step if below else 1 + (len(rows) - 1 - i) * step
        drawn = figure.legend(handles=([first] if heading else []) + row, loc="upper left" if below else "lower left", bbox_to_anchor=(0.03, y),
                              ncol=len(row) + 1, fontsize=points, frameon=False, columnspacing=1.4, handlelength=1.6, borderpad=0.3)
        if heading:
            word = drawn.get_texts()[0]
            word.set_fontweight("bold")
            word.set_alpha(0 if i else 1)  # the rows that follow begin where the first does
    return len(rows)


def write(figure, path, dpi=DPI):
    """Writes a picture whole, or not at all; its kind is the name's ending. PNG have 256 colours, which is a third of the bytes. One that is
    there with the same pixels stays as it is, with the hashes that scripts/redraw noted in it."""
    path = str(path)
    ending = os.path.splitext(path)[1].lower()[1:]
    partial = f"{path}.{os.getpid()}.partial"
    meta = {"Date": None} if ending == "svg" else {"Software": None} if ending == "png" else None
    try:
        figure.savefig(partial, dpi=dpi, bbox_inches="tight", format=ending, metadata=meta)
        if ending == "png":
            reduce(partial)
        if ending != "png" or not same_pixels(partial, path):
            os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
        plt.close(figure)


def same_pixels(path, other):
    try:
        from PIL import Image
        with Image.open(path) as one, Image.open(other) as two:
            return one.convert("RGB").tobytes() == two.convert("RGB").tobytes()
    except (ImportError, OSError):
        return False


def reduce(path):
    """Rewrites a PNG with its 256 most frequent colours, which are those of bars and letters; each rarer one becomes the nearest of them."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        pixels = numpy.asarray(image.convert("RGB")).astype(numpy.int32)
    packed, where, counts = numpy.unique(pixels @ (1 << 16, 1 << 8, 1), return_inverse=True, return_counts=True)
    colours = numpy.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1)
    palette = colours[numpy.argsort(-counts, kind="stable")[:256]]
    nearest = numpy.concatenate([((part[:, None] - palette) ** 2).sum(axis=2).argmin(axis=1) for part in numpy.array_split(colours, len(colours) // 1000 + 1)])
    image = Image.fromarray(nearest[where].reshape(pixels.shape[:2]).astype(numpy.uint8), "P")
    image.putpalette(palette.astype(numpy.uint8).tobytes())
    image.save(path, format="png", optimize=True)
