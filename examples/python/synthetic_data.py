#!/usr/bin/env python3
"""Writes made-up question and answer pairs: `synthetic_data.py OUT.jsonl [MODEL]`. The topics come from an iterator, so
that their number does not matter; each pair is written when it is finished."""
import itertools
import json
import sys

from klotski import LLM, SamplingParams

TOPICS = ["rivers", "bridges", "clocks", "honey", "glass", "maps"]
FORMS = ["a child", "an engineer", "a poet"]


def prompts():
    for topic, reader in itertools.product(TOPICS, FORMS):
        yield f"Question from {reader} about {topic}:"


def main():
    params = SamplingParams(temperature=0.9, top_p=0.95, max_tokens=16, seed=1, stop="\n")
    with LLM(sys.argv[2] if len(sys.argv) > 2 else "tiny") as llm, open(sys.argv[1], "w", encoding="utf-8") as out:
        for asked in llm.iterate(prompts(), params, ordered=False):
            question = asked.outputs[0].text.strip()
            out.write(json.dumps({"prompt": asked.prompt, "question": question}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
