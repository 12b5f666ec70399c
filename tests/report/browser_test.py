"""Opens report.html in a headless Chromium, at phone and desktop width, light and dark: no console message, nothing wider
than the page. Skipped where no Chromium is found.

usage: browser_test.py PROGRAM PAGES_PROGRAM [unittest arguments]
  PAGES_PROGRAM: train_test, whose RunPage cases write pages of made-up logs into MEGATOKEN_KEEP_PAGES
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, PAGES = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/qwen3_tied"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Chromium's windows are at least 500 wide: a frame is as narrow as a phone.
FRAME = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="f" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>addEventListener("load", () => {{
  const d = document.getElementById("f").contentDocument, e = d.documentElement;
  const wide = [...d.querySelectorAll("body *")].filter(n => !n.closest(".scroll,pre,svg") &&
    n.getBoundingClientRect().right > e.clientWidth + 1).map(n => n.tagName + " " + n.textContent.slice(0, 40));
  const r = {{client: e.clientWidth, scroll: e.scrollWidth, wide, figures: d.querySelectorAll("figure svg").length,
    dark: d.defaultView.matchMedia("(prefers-color-scheme:dark)").matches,
    ground: d.defaultView.getComputedStyle(d.body).backgroundColor, broken: /NaN|Infinity|undefined/.test(d.body.innerHTML)}};
  document.body.insertAdjacentHTML("beforeend", "<p id=result></p>");
  document.getElementById("result").textContent = JSON.stringify(r);
}});</script>"""


@unittest.skipIf(CHROMIUM is None, "no Chromium here")
class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.pages = {}
        command = [PROGRAM, "train", "--model_name_or_path", GOLDEN, "--dataset_name", GOLDEN / "train.jsonl", "--use_cpu"]
        command += ["--max_length", "64", "--report_to", "none", "--eval_dataset", GOLDEN / "train.jsonl", "--save_strategy", "no"]
        for name, more in {
            "one-step": ["--max_steps", "1"],
            "many": ["--max_steps", "30", "--eval_strategy", "steps", "--eval_steps", "10", "--num_processes", "2", "--cp_size", "2"],
        }.items():
            out = cls.folder / name
            subprocess.run([*command, *more, "--output_dir", out], check=True, stdout=subprocess.DEVNULL)
            cls.pages[name] = (out / "report.html").read_text()
        if PAGES.exists():
            environment = os.environ | dict(MEGATOKEN_KEEP_PAGES=str(cls.folder))
            subprocess.run([PAGES, "--gtest_filter=RunPage.*"], check=True, stdout=subprocess.DEVNULL, env=environment)
            for page in cls.folder.glob("*.html"):
                cls.pages[page.stem] = page.read_text()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def look(self, name, width, dark):
        file = self.folder / "frame.html"
        file.write_text(FRAME.format(width=width, page=html.escape(self.pages[name])))
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile"]
        command += ["--enable-logging=stderr", f"--window-size={max(width, 500)},900", "--virtual-time-budget=5000", "--dump-dom"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", file.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        self.assertNotIn("CONSOLE", done.stderr)
        return json.loads(html.unescape(re.search(r'<p id="result">(.*?)</p>', done.stdout, re.S)[1]))

    def test_pages(self):
        self.assertGreaterEqual(len(self.pages), 2)
        for name in self.pages:
            for width, dark in ((390, False), (390, True), (1280, False), (1280, True)):
                with self.subTest(page=name, width=width, dark=dark):
                    seen = self.look(name, width, dark)
                    self.assertEqual(seen["dark"], dark)
                    self.assertNotEqual(seen["ground"], "rgb(255, 255, 255)" if dark else "rgb(20, 23, 26)")
                    self.assertEqual(seen["scroll"], seen["client"], "scrolls sideways")
                    self.assertEqual(seen["wide"], [])
                    self.assertLessEqual(width - 20, seen["client"])
                    self.assertGreaterEqual(seen["figures"], 2)
                    self.assertFalse(seen["broken"])


if __name__ == "__main__":
    unittest.main()
