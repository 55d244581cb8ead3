"""Tests of tools/check_layers.py: it must fail on each kind of bad tree, and only on those."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"

TABLE = """# Folders
| level | folder | what lives there |
|---|---|---|
| 0 | `base/` | errors |
| 1 | `tensor/` `text/` | two in one cell |
| 2 | `kernels/` | operations |
"""


def run(files, table=TABLE):
    """Exit code and printed lines for a tree of these files."""
    with tempfile.TemporaryDirectory() as root:
        if table is not None:
            files = dict(files, **{"src/README.md": table})
        for name, text in files.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        pathlib.Path(root, "src").mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), root], capture_output=True, text=True, check=False
        )
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout.splitlines()


class CheckLayers(unittest.TestCase):
    def test_a_type_is_defined_once(self):
        one = "namespace klotski {\nstruct Run {\n};\n}  // namespace klotski\n"
        other = one.replace("struct Run {", "class Run final : public Base {")
        hidden = one.replace("struct", "namespace {\nstruct").replace("};", "};\n}  // namespace")
        elsewhere = one.replace("klotski", "klotski::text")
        self.assertEqual(run({"src/base/a.h": one, "src/text/b.cpp": hidden, "src/tensor/c.h": elsewhere}), (0, []))
        code, lines = run({"src/base/a.h": one, "src/text/b.cpp": other})
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["src/text/b.cpp:2: klotski::Run: src/base/a.h defines a type of this name"])

    def test_a_sound_tree_passes(self):
        files = {
            "src/base/a.h": "#include <vector>\n",
            "src/tensor/b.cpp": '#include "tensor/b.h"\n#include "base/a.h"\n',
            "src/kernels/c.cu": '#include <cuda_runtime.h>\n#include "tensor/b.h"\n',
            "src/kernels/c_cuda.h": "#include <cublas_v2.h>\n",
            "src/kernels/cpu/d.cpp": '#include "text/t.h"\n#include "json/other.h"\n',
            "src/kernels/CMakeLists.txt": '#include "nothing/real.h"\n',
        }
        self.assertEqual(run(files), (0, []))

    def test_an_include_of_a_higher_level_fails(self):
        code, lines = run({"src/base/a.h": '\n#  include "tensor/b.h"\n'})
        self.assertEqual(code, 1)
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("src/base/a.h:2: "), lines)

    def test_an_include_of_the_same_level_fails(self):
        code, lines = run({"src/text/a.cpp": '#include "tensor/b.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("src/text/a.cpp:1:", lines[0])

    def test_tests_obey_too(self):
        self.assertEqual(run({"src/tensor/deep/a_test.cpp": '#include "kernels/ops.h"\n'})[0], 1)

    def test_going_up_by_dots_fails(self):
        self.assertEqual(run({"src/base/a.cpp": '#include "../tensor/b.h"\n'})[0], 1)

    def test_a_folder_missing_from_the_table_fails(self):
        code, lines = run({"src/secret/a.h": "\n"})
        self.assertEqual((code, lines), (1, ["src/secret:1: not in the table of src/README.md"]))

    def test_cuda_headers_outside_cuda_files_fail(self):
        for header in ("cuda_runtime.h", "cublas_v2.h", "cuda/std/atomic", "nvtx3/nvtx3.hpp"):
            code, lines = run({"src/kernels/a.h": f"#include <{header}>\n"})
            self.assertEqual(code, 1, header)
            self.assertTrue(lines[0].startswith("src/kernels/a.h:1: "), lines)

    def test_a_missing_table_fails(self):
        self.assertEqual(run({"src/base/a.h": ""}, table=None)[0], 1)
        self.assertEqual(run({"src/base/a.h": ""}, table="no table\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
