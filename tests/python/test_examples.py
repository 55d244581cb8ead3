"""Every example as a user runs it, and the program that users of vLLM begin with."""
import json
import os
import pathlib
import subprocess
import sys

import klotski
import pytest
from conftest import starts_the_program

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
MMLU = EXAMPLES.parents[2] / "shared" / "data" / "prompts" / "mmlu_test.jsonl"

# A program in the form of vLLM's quick start, with its model's name; only the import is another.
QUICK_START = """
from klotski import LLM, SamplingParams
prompts = ["Hello, my name is", "The capital of France is"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
llm = LLM(model="facebook/opt-125m")
outputs = llm.generate(prompts, sampling_params)
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {prompt!r}, Generated text: {generated_text!r}")
"""


def run(*command, **environment):
    ended = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300,
                           env={**os.environ, **environment})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_quick_start():
    assert run(EXAMPLES / "quick_start.py").count(" -> ") == 3


def test_the_quick_start_of_vllm(tmp_path):
    model = tmp_path / "models--facebook--opt-125m"  # the cache of Hugging Face's client, with another model in it
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("1")
    (model / "snapshots").mkdir()
    (model / "snapshots" / "1").symlink_to(pathlib.Path(klotski.__file__).parent / "models" / "tiny-mixtral")
    assert run("-c", QUICK_START, HF_HUB_CACHE=str(tmp_path)).count("Generated text") == 2


@pytest.mark.parametrize("questions", [EXAMPLES / "questions.jsonl", MMLU], ids=["own", "mmlu"])
def test_mmlu(questions):
    if not questions.exists():
        pytest.skip(f"{questions.name} is not here")
    assert " right (" in run(EXAMPLES / "mmlu.py", "--questions", questions, "--limit", "20")


def test_synthetic_data(tmp_path):
    run(EXAMPLES / "synthetic_data.py", tmp_path / "out.jsonl")
    assert len([json.loads(line) for line in open(tmp_path / "out.jsonl", encoding="utf-8")]) == 18


@starts_the_program
def test_server_client():
    assert run(EXAMPLES / "server_client.py").strip()


def test_notebook():
    cells = json.loads((EXAMPLES / "columns.ipynb").read_text(encoding="utf-8"))["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102  (our own cells)
    assert names["trace"].experts


@starts_the_program
def test_the_command_line_of_the_package():
    assert run("-m", "klotski", "--version").strip() == f"klotski {klotski.__version__}"
