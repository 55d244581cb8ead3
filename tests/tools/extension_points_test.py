"""What is there of each kind is known by name in few files: those that src/README.md lists for adding one."""

import pathlib
import re
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"


def files_with(pattern):
    """Source files, tests and their helpers left out, in which the pattern occurs."""
    found = set()
    for path in SOURCES.rglob("*"):
        if path.suffix not in (".h", ".cpp", ".cu") or "test" in path.stem or "testing" in path.parts:
            continue
        if re.search(pattern, path.read_text(encoding="utf-8")):
            found.add(str(path.relative_to(SOURCES)))
    return found


class ExtensionPoints(unittest.TestCase):
    def test_an_eviction_rule(self):
        self.assertLessEqual(
            files_with(r'"lfu"|\blfu\b'),
            {"experts/eviction.cpp", "experts/eviction.h", "cli/session_flags.cpp", "planner/run_plan.cpp"},
        )

    def test_a_predictor(self):
        self.assertLessEqual(
            files_with(r"\bTokenPredictor\b"),
            {"experts/token_predictor.h", "experts/token_predictor.cpp",
             "experts/predictor_choice.cpp"},
        )

    def test_a_weight_format(self):
        allowed = {
            "tensor/dtype.h", "tensor/compact.h", "tensor/compact.cpp", "tensor/compact_format.cpp",
            "tensor/format.cpp", "kernels/cpu/formats.cpp", "kernels/cpu/compact.cpp",
            "kernels/cuda/formats.cu", "model/compact_model.cpp", "synth/random_model.cpp",
        }
        self.assertLessEqual(files_with(r"kCompactType|BF16_COMPACT"), allowed)

    def test_a_quantised_checkpoint(self):
        self.assertLessEqual(
            files_with(r"CheckpointMethod"),
            {
                "tensor/checkpoint_formats.h", "tensor/checkpoint_formats.cpp", "model/quantization.cpp",
                "kernels/cuda/checkpoint_blocks.cu",
            },
        )

    def test_a_family(self):
        known = files_with(r'"olmoe"')
        self.assertTrue(known)
        self.assertTrue(all(name.startswith("model/families/") for name in known), known)

    def test_a_command(self):
        self.assertEqual(
            files_with(r"add_tokenize_command"), {"cli/tokenize.cpp", "cli/command.h", "cli/main.cpp"}
        )

    def test_a_strategy(self):
        # Searching, planning and reports ask for properties; one default is named.
        named = {
            name for name in files_with(r"[=!]= Strategy::") if not name.startswith("schedule/")
        }
        self.assertEqual(named, set())

    def test_the_executor_tests_no_kind_of_work(self):
        text = (SOURCES / "executor/executor.cpp").read_text(encoding="utf-8")
        self.assertNotIn("Work::", text)


if __name__ == "__main__":
    unittest.main()
