#!/usr/bin/env python3
"""Opens the dashboard of `klotski serve` and the page of a plan in headless Chromium:
`dashboard_test.py KLOTSKI SOURCE_FOLDER [FOLDER]`.

The figures on the dashboard are compared with those of /stats. FOLDER keeps screenshots: a phone in
light and a desk in dark colours. Skipped where no Chromium is installed."""
import html
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from program import HANGS, KLOTSKI
from server import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None


def chromium(url, *arguments):
    """Standard output of a headless Chromium that shows the page for five seconds of its own time."""
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}", "--virtual-time-budget=5000",
                   *arguments, url]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS,
                                env={**os.environ, "HOME": profile})
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def text_of(page, name):
    """The text of the element with that id."""
    match = re.search(rf'<(\w+)[^>]*id="{name}"[^>]*>(.*?)</\1>', page, re.S)
    if not match:
        raise AssertionError(f"no element {name}")
    return html.unescape(re.sub(r"<[^>]*>", " ", match[2])).strip()


def rows_of(page, name):
    """The table with that id, by the first column."""
    table = re.search(rf'<table id="{name}">(.*?)</table>', page, re.S)[1]
    cells = [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", table)]
    return dict(zip(cells[::2], cells[1::2]))


def save_pictures(test, url, folder, pictures):
    """Screenshots by name, size of the window and whether dark colours are preferred, in FOLDER where that is given."""
    folder = SCREENSHOTS or pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, size, dark in pictures:
        file = folder / f"{name}.png"
        chromium(url, f"--window-size={size}", f"--screenshot={file}",
                 *(["--blink-settings=preferredColorScheme=0"] if dark else []))
        test.assertGreater(file.stat().st_size, 10_000)


def too_wide(page, others=None):
    """The widths of windows in which a page has to be scrolled sideways. A copy of it, beside `others` by their paths,
    tells the width of its layout in its title."""
    measures = b"""<script>setTimeout(() => {
        document.title = document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide"; }, 3000)</script>"""
    answers = {"/": ("text/html", page + measures), **(others or {})}

    class Copy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = answers.get(self.path, ("text/plain", b""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Copy) as copy:
        threading.Thread(target=copy.serve_forever, daemon=True).start()
        url = "http://127.0.0.1:%d/" % copy.server_port
        shown = {width: chromium(url, f"--window-size={width},1400", "--dump-dom") for width in (360, 420, 1200)}
        copy.shutdown()
    return [width for width, page in shown.items() if "<title>fits</title>" not in page]


@unittest.skipUnless(CHROMIUM, "no Chromium: install the package chromium to test the dashboard")
class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-name", "tiny <b>&amp;", "--expert-slots", "12")  # some experts come from disk
        prompt = "Four score and seven years ago our fathers brought forth, upon this continent, a new nation"
        for _ in range(3):
            cls.server.complete(prompt=prompt, max_tokens=20)

    @classmethod
    def tearDownClass(cls):
        with cls.server as server:
            server.stop()

    def test_figures_are_those_of_the_server(self):
        stats = self.server.stats()
        page = chromium(self.server.url + "/", "--dump-dom")
        self.assertEqual(text_of(page, "model"), "tiny <b>&amp;")
        self.assertTrue(text_of(page, "state").startswith("ready, up for "))
        self.assertEqual(text_of(page, "tokens"), str(stats["generated_tokens"]))
        self.assertEqual((text_of(page, "running"), text_of(page, "queue")), ("0", "0"))
        found = 100 * stats["experts_found"] / stats["experts_asked"]
        self.assertEqual(text_of(page, "experts"), f"{found:.1f} %")
        keys = rows_of(page, "keys")
        self.assertGreater(stats["prefix"]["tokens"], 0)
        self.assertEqual(keys["tokens that were not computed anew"], str(stats["prefix"]["tokens"]))
        self.assertEqual(keys["requests that found their beginning"], "2")
        self.assertEqual(keys["sequences preempted for lack of pages"], "0")
        cache = rows_of(page, "cache")
        self.assertEqual(cache["experts asked for by passes"], f"{stats['experts_asked']:,}")
        self.assertEqual(cache["found in memory"], f"{stats['experts_found']:,}")
        self.assertEqual(text_of(page, "predictor"), stats["predictor"]["name"])
        self.assertEqual(rows_of(page, "prediction")["experts foretold"], f"{stats['predictor']['foretold']:,}")

    def test_lanes_and_memories_are_drawn(self):
        stats = self.server.stats()
        self.assertGreater(len(stats["spans"]), 100)
        page = chromium(self.server.url + "/", "--dump-dom")
        strips = re.findall(r'<svg[^>]*aria-label="spans of ([^"]*)"[^>]*>(.*?)</svg>', page, re.S)
        self.assertEqual([html.unescape(name) for name, _ in strips], [lane["name"] for lane in stats["lanes"]])
        drawn = sum(strip.count("<rect") for _, strip in strips)
        self.assertEqual(drawn, len(stats["spans"]))
        self.assertIn("disk read", "".join(lane["name"] for lane in stats["lanes"]))
        moved = re.search(r'<div id="lanes">(.*?)</div>\s*<script', page, re.S)[1]
        self.assertRegex(moved, r"\d+\.\d [KM]iB")
        for work in ("attention", "expert"):
            self.assertIn(f'class="{work}"', "".join(strip for _, strip in strips))
        memories = re.search(r'<div id="memories">(.*?)<h2>', page, re.S)[1]
        for memory in stats["memories"]:
            self.assertIn(memory["name"], memories)
            self.assertLessEqual(memory["used_bytes"], memory["limit_bytes"])
        self.assertIn("KV cache", memories)

    def test_nothing_foreign_is_asked_for(self):
        _, page = self.server.get("/")
        self.assertNotRegex(page.decode(), r"https?://|src=|href=|@import|url\(")

    def test_a_phone_needs_no_scrolling_sideways(self):
        _, page = self.server.get("/")
        stats = json.dumps(self.server.stats()).encode()
        self.assertEqual(too_wide(page, {"/stats": ("application/json", stats)}), [])

    def test_pictures(self):
        with tempfile.TemporaryDirectory() as temporary:
            save_pictures(self, self.server.url + "/", temporary, (("phone", "420,1900", False),
                                                                   ("desk-dark", "1200,1500", True)))


@unittest.skipUnless(CHROMIUM, "no Chromium: install the package chromium to test the page of a plan")
class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.page = pathlib.Path(folder.name) / "plan.html"
        subprocess.run([KLOTSKI, "plan", "tiny", "--expert-slots", "20", "--html", cls.page], check=True,
                       capture_output=True, timeout=HANGS)

    def test_a_phone_needs_no_scrolling_sideways(self):
        page = self.page.read_bytes()
        policy = re.search(rb'<meta http-equiv="Content-Security-Policy"[^>]*>', page)[0]
        self.assertIn(b"default-src 'none'", policy)
        self.assertEqual(too_wide(page.replace(policy, b"")), [])  # it forbids the script that measures

    def test_pictures(self):
        with tempfile.TemporaryDirectory() as temporary:
            save_pictures(self, self.page.as_uri(), temporary, (("plan-phone", "420,5000", False),
                                                                ("plan-desk-dark", "1200,3500", True)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
