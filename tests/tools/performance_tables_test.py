"""Tables of a page follow their results files, and a page or a file that lacks something is refused."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path("tools/performance_tables.py")

PAGE = """# Performance

<!-- table
a = some-run
| setting | tokens/s |
for s in a.settings: | {s.setting} | {median(s.runs):.1f} ({each(s.runs)}) |
| {a.settings[1].setting}, once more | {a.settings[1].runs[0]:.2f} |
-->
<!-- end of table -->
"""

RESULT = {
    "commit": "abc1234",
    "command": "klotski bench tiny",
    "machine": "a machine",
    "repetitions": 2,
    "spread": 12.5,
    "settings": [{"setting": "simple", "runs": [4.0, 3.5]}, {"setting": "klotski", "runs": [8.25, 8.0]}],
}

TABLE = """-->
| setting | tokens/s |
|---|---|
| simple | 3.5 (3.5, 4.0) |
| klotski | 8.0 (8.0, 8.2) |
| klotski, once more | 8.25 |

Evidence: [some-run](../bench/results/some-run.json) as of abc1234, 2 runs, spread 12.5 %.
<!-- end of table -->
"""


class PerformanceTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools", "docs", "bench/results"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(ROOT / TOOL, self.root / TOOL)
        self.page = self.root / "docs" / "performance.md"
        self.result = self.root / "bench" / "results" / "some-run.json"
        self.page.write_text(PAGE)
        self.write(RESULT)

    def write(self, fields):
        self.result.write_text(json.dumps(fields))

    def tool(self, *arguments):
        done = subprocess.run([sys.executable, self.root / TOOL, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def refused(self, *words):
        found = self.page.read_text()
        for arguments in ((), ("--check",)):
            code, message = self.tool(*arguments)
            self.assertEqual(code, 1, message)
            for word in words:
                self.assertIn(word, message)
            self.assertNotIn("Traceback", message)
        self.assertEqual(self.page.read_text(), found)

    def test_tables_are_made_and_checked(self):
        code, message = self.tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("docs/performance.md:9", message)
        self.assertEqual(self.tool(), (0, ""))
        self.assertTrue(self.page.read_text().endswith(TABLE), self.page.read_text())
        self.assertEqual(self.tool("--check"), (0, ""))

    def test_a_figure_that_differs_is_found(self):
        self.tool()
        page = self.page.read_text()
        self.page.write_text(page.replace("| simple | 3.5 (", "| simple | 3.6 ("))
        code, message = self.tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("found\n| simple | 3.6 (3.5, 4.0) |\nthe results files give\n| simple | 3.5 (3.5, 4.0) |", message)
        self.page.write_text(page)
        self.write({**RESULT, "commit": "def5678"})
        code, message = self.tool("--check")
        self.assertEqual(code, 1)
        self.assertIn("as of def5678", message)

    def test_evidence_is_asked_for_and_what_is_unknown_is_said(self):
        for field in ("commit", "command", "machine", "repetitions", "spread"):
            self.write({key: value for key, value in RESULT.items() if key != field})
            self.refused("some-run.json", field)
        self.write({**RESULT, "repetitions": "unknown", "spread": "unknown"})
        self.assertEqual(self.tool()[0], 0)
        self.assertIn("as of abc1234, repetitions and spread unknown.", self.page.read_text())
        self.write({**RESULT, "repetitions": 1, "spread": "one run"})
        self.assertEqual(self.tool()[0], 0)
        self.assertIn("as of abc1234, 1 run.", self.page.read_text())

    def test_recipes_that_cannot_be_followed_are_refused(self):
        for old, new, word in (
                ("a = some-run", "a = another-run", "no results file another-run"),
                ("a = some-run\n", "", "names no results file"),
                ("a.settings:", "a.strategies:", "no field strategies"),
                ("{median(s.runs):.1f} ({each(s.runs)}) |", "{median(s.runs):.1f} | |", "expected 2 columns"),
                ("{s.setting}", "{only(a.settings, setting='fastest')}", "0 elements"),
                ("{s.setting}", "{open('x')}", "open"),
                ("<!-- end of table -->\n", "", "lacks its other one"),
                ("# Performance\n", "# Performance\n\n| a row | by hand |\n", "outside the tables' markers")):
            self.page.write_text(PAGE.replace(old, new))
            self.refused(word)


if __name__ == "__main__":
    unittest.main()
