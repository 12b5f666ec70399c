"""Draws docs/images/yarn.svg from the numbers in docs/benchmarks.md: SmolLM2 on rows of 131,072 tokens with and without YaRN,
loss by position and loss by step.

    python3 tools/draw_yarn.py            # writes
    python3 tools/draw_yarn.py --check    # exits 1 when the picture is another
"""

import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
PICTURE = DOCS / "images/yarn.svg"
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#5b6570}.m{text-anchor:middle}.e{text-anchor:end}path{fill:none;stroke-width:2}"
    ".g{stroke:#8a8f98;stroke-width:.5}@media(prefers-color-scheme:dark){text{fill:#9aa4ae}}</style>"
)
COLOURS = {"without YaRN": "#d55e00", "with factor 16": "#0072b2", "after six steps": "#009e73"}
LOW, HIGH, TOP, HEIGHT = 2, 9, 40, 200


def numbers(text):
    return [float(value) for value in re.findall(r"\d+\.\d+", text)]


def panel(left, width, title, axis, series):
    def y(value):
        return round(TOP + HEIGHT * (HIGH - value) / (HIGH - LOW), 1)

    parts = [f'<text x="{left}" y="20">{title}</text>']
    for value in range(LOW, HIGH + 1):
        parts.append(f'<path class="g" d="M{left} {y(value)}h{width}"/><text class="e" x="{left - 6}" y="{y(value) + 4}">{value}</text>')
    count = max(len(values) for values in series.values())
    gap = width / max(count - 1, 1)
    for i in range(count):
        parts.append(f'<text class="m" x="{left + i * gap:.1f}" y="{TOP + HEIGHT + 18}">{i + 1}</text>')
    parts.append(f'<text class="m" x="{left + width / 2}" y="{TOP + HEIGHT + 38}">{axis}</text>')
    for name, values in series.items():
        points = [(round(left + i * gap, 1), y(value)) for i, value in enumerate(values)]
        colour = COLOURS[name]
        parts.append(f'<path stroke="{colour}" d="M{"L".join(f"{a} {b}" for a, b in points)}"/>')
        parts += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in points]
    return parts


def main():
    text = (DOCS / "benchmarks.md").read_text()
    eighths = re.search(r"Held-out loss by eighths of the row: without YaRN (.*?); with it (.*?); after\s+six steps (.*?)\. A step", text, re.S)
    position = dict(zip(COLOURS, (numbers(part) for part in eighths.groups())))
    yarn = numbers(re.search(r"\| loss with YaRN x 16 \|(.*)", text)[1])[:6]
    plain = numbers(re.search(r"\| loss without \|(.*)", text)[1])[:1]
    parts = panel(40, 300, "held-out loss by eighths of the row", "part of the row", position)
    parts += panel(410, 220, "training loss", "step", {"with factor 16": yarn, "without YaRN": plain})
    for i, (name, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{40 + i * 150}" y="292" width="12" height="12" fill="{colour}"/><text x="{58 + i * 150}" y="303">{name}</text>')
    label = "loss by position and by step, with and without YaRN"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 650 314" role="img" aria-label="{label}">'
    picture = "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(picture)
    elif PICTURE.read_text() != picture:
        raise SystemExit(f"{PICTURE}: out of date; python3 tools/draw_yarn.py")


main()
