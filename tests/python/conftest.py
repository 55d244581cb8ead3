import os

import pytest

from klotski import LLM

#: For tests that start the program, which has a sanitizer's runtime of its own, or that measure memory.
plain_build = pytest.mark.skipif(bool(os.environ.get("KLOTSKI_SANITIZE")), reason="not with a sanitizer")

PROMPTS = ["Once upon a time", "The river", "In the year 1900", "A clock is", "Honey"]


@pytest.fixture(scope="session")
def llm():
    with LLM("tiny", device="cpu") as model:
        yield model
