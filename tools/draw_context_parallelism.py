"""Draws the pictures of docs/context_parallelism.md.

    python3 tools/draw_context_parallelism.py docs/images            # writes
    python3 tools/draw_context_parallelism.py docs/images --check    # exits 1 when a picture is another
"""

import pathlib
import sys

CP = 4
CHUNKS = 2 * CP
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]  # Okabe and Ito
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#5b6570}.in{fill:#fff;text-anchor:middle}.mid{text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#9aa4ae}.in{fill:#fff}}</style>"
)


def rank_of(chunk):
    """TokenLayout: rank r holds chunks r and 2 cp - 1 - r."""
    return min(chunk, CHUNKS - 1 - chunk)


def svg(width, height, label, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def box(x, y, width, height, rank, text=""):
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{COLOURS[rank]}" rx="3"/>'
    return shape + (f'<text class="in" x="{x + width / 2}" y="{y + height / 2 + 5}">{text}</text>' if text != "" else "")


def cut():
    """A sequence cut into chunks, and which rank has which."""
    parts = ['<text x="10" y="20">one sequence, cut in 2 x cp chunks</text>']
    for c in range(CHUNKS):
        parts.append(box(10 + c * 72, 30, 68, 34, rank_of(c), c))
    for r in range(CP):
        y = 100 + r * 46
        parts.append(f'<text x="10" y="{y + 22}">rank {r}</text>')
        for half, c in enumerate((r, CHUNKS - 1 - r)):
            parts.append(box(70 + half * 72, y, 68, 34, r, c))
        work = r + 1 + CHUNKS - r
        parts.append(f'<text x="232" y="{y + 22}">attends to {r + 1} + {CHUNKS - r} = {work} chunks, its own two by half</text>')
    return svg(596, 284, "a sequence cut into eight chunks for four ranks", parts)


def mask():
    """Which rank computes which square of causal attention."""
    size, left, top = 34, 70, 40
    parts = [f'<text class="mid" x="{left + CHUNKS * size / 2}" y="16">keys</text>', '<text x="10" y="34">queries</text>']
    for q in range(CHUNKS):
        parts.append(f'<text class="mid" x="{left + q * size + size / 2}" y="{top - 6}">{q}</text>')
        parts.append(f'<text x="{left - 16}" y="{top + q * size + 22}">{q}</text>')
        for k in range(q + 1):
            x, y, edge = left + k * size, top + q * size, size - 2
            if k < q:
                parts.append(box(x, y, edge, edge, rank_of(q)))
            else:
                parts.append(f'<path d="M{x} {y}v{edge}h{edge}z" fill="{COLOURS[rank_of(q)]}"/>')
    for r in range(CP):
        whole = sum(q for q in range(CHUNKS) if rank_of(q) == r)
        y = top + 20 + r * 30
        parts.append(box(370, y, 18, 18, r))
        parts.append(f'<text x="396" y="{y + 14}">rank {r}: {whole} squares and 2 halves</text>')
    return svg(596, 330, "causal attention of eight chunks, dealt to four ranks", parts)


def ring():
    """Whose keys each rank has in each phase of the ring."""
    parts = ['<text x="10" y="20">keys at each rank, phase by phase (alltoall)</text>']
    for phase in range(CP):
        parts.append(f'<text class="mid" x="{116 + phase * 120}" y="48">phase {phase}</text>')
    for r in range(CP):
        y = 60 + r * 44
        parts.append(f'<text x="10" y="{y + 22}">rank {r}</text>')
        for phase in range(CP):
            owner = (r - phase) % CP
            parts.append(box(66 + phase * 120, y, 100, 32, owner, f"of rank {owner}"))
    return svg(596, 250, "keys travelling around a ring of four ranks", parts)


def main():
    folder, check = pathlib.Path(sys.argv[1]), "--check" in sys.argv[2:]
    for name, picture in (("cp-chunks", cut()), ("cp-mask", mask()), ("cp-ring", ring())):
        path = folder / f"{name}.svg"
        if check and (not path.exists() or path.read_text() != picture):
            raise SystemExit(f"{path}: out of date; python3 tools/draw_context_parallelism.py {folder}")
        if not check:
            path.write_text(picture)


main()
