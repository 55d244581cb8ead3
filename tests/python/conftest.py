import os

import pytest

from klotski import LLM

SANITIZED = bool(os.environ.get("KLOTSKI_SANITIZE"))
#: For tests that measure memory or time.
plain_build = pytest.mark.skipif(SANITIZED, reason="not with a sanitizer")
starts_the_program = pytest.mark.skipif(SANITIZED, reason="the sanitizer loaded for the interpreter is not the program's")

PROMPTS = ["Once upon a time", "The river", "In the year 1900", "A clock is", "Honey"]


@pytest.fixture(scope="session")
def llm():
    with LLM("tiny", device="cpu") as model:
        yield model
