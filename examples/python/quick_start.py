#!/usr/bin/env python3
"""Continues a few texts: `quick_start.py [MODEL]`."""
import sys

from klotski import LLM, SamplingParams

prompts = ["The capital of France is", "The planets of the solar system are", "A good night's sleep"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=24)

with LLM(model=sys.argv[1] if len(sys.argv) > 1 else "tiny") as llm:
    for output in llm.generate(prompts, sampling_params):
        print(f"{output.prompt!r} -> {output.outputs[0].text!r}")
