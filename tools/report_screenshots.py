"""Pictures of a report.html for docs/reports.md, by a headless Chromium, made small. Needs Pillow.

    python tools/report_screenshots.py OUT/report.html docs/images
"""

import html
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

FRAME = '<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><iframe style="border:0;width:{}px;height:{}px" srcdoc="{}"></iframe>'


def main():
    page, out = html.escape(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        frame, shot = pathlib.Path(scratch) / "frame.html", pathlib.Path(scratch) / "shot.png"
        for name, width, height in (("desktop", 1280, 2100), ("phone", 390, 1300)):
            for mode, scheme in (("light", 1), ("dark", 0)):
                frame.write_text(FRAME.format(width, height, page))
                command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
                command += [f"--user-data-dir={scratch}/profile", f"--window-size={max(width, 500)},{height}"]
                command += [f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}", frame.as_uri()]
                subprocess.run(command, check=True, capture_output=True, timeout=60)
                picture = Image.open(shot).convert("RGB").crop((0, 0, width, height))
                picture = picture.resize((picture.width // 2, picture.height // 2), Image.LANCZOS)
                picture.quantize(128).save(out / f"report-{name}-{mode}.png", optimize=True)


main()
