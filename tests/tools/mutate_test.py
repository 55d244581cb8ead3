"""Tests of tools/mutate --check: it must refuse slips that no longer fit the code, and only those."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "mutate"
SLIP = """[[slip]]
id = "{id}"
file = "arena.cpp"
kind = "boundary"
changes = "{changes}"
old = '{old}'
new = '{new}'
"""


def check(*slips, code="if (a < b) return c;\nif (b < c) return a;\n"):
    """Exit code and printed lines for slips of a folder with one file."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in ("tools/slips", "src/memory"):
            (root / folder).mkdir(parents=True)
        shutil.copy(PROGRAM, root / "tools" / "mutate")
        (root / "src/memory/arena.cpp").write_text(code, encoding="utf-8")
        (root / "tools/slips/memory.toml").write_text("".join(slips), encoding="utf-8")
        done = subprocess.run([sys.executable, root / "tools" / "mutate", "--check"], capture_output=True, text=True)
        return done.returncode, done.stdout


def slip(id="a", old="a < b", new="a <= b", changes="boundaries", more=""):
    return SLIP.format(id=id, old=old, new=new, changes=changes) + more


class Check(unittest.TestCase):
    def refused(self, says, *slips):
        code, printed = check(*slips)
        self.assertEqual(code, 1, printed)
        self.assertIn(says, printed)

    def test_slips_that_fit(self):
        code, printed = check(slip(), slip(id="b", old="b < c", new="b <= c", more='tests = ["kv:Page*"]\n'))
        self.assertEqual((code, printed), (0, "2 slips, 0 problems\n"))

    def test_text_that_is_gone(self):
        self.refused("memory/a: the old text occurs 0 times", slip(old="a > b"))

    def test_text_that_is_not_unique(self):
        self.refused("memory/a: the old text occurs 2 times", slip(old="return"))

    def test_a_slip_that_changes_nothing(self):
        self.refused("the new text is the old one", slip(new="a < b"))

    def test_one_id_for_two(self):
        self.refused("2 slips have this id", slip(), slip(old="b < c"))

    def test_fields(self):
        self.refused("unknown fields ['why']", slip(more='why = ""\n'))
        self.refused("changes: expected one of", slip(changes="nothing"))
        self.refused("tests: nobody is no program", slip(more='tests = ["nobody"]\n'))


if __name__ == "__main__":
    unittest.main()
