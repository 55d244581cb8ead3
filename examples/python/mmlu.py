#!/usr/bin/env python3
"""Scores a model on questions with four choices, as MMLU has them: by the probability of each letter as the next token.

`mmlu.py [--model MODEL] [--questions FILE.jsonl] [--limit N]`; each line of the file has "question", "choices" and the
letter of the "answer"."""
import argparse
import json
import pathlib

from klotski import LLM, SamplingParams

LETTERS = "ABCD"


def prompt_of(row):
    choices = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, row["choices"]))
    return f"{row['question']}\n{choices}\nAnswer:"


def chosen(llm_output):
    """The most likely letter among the alternatives of the first token; none where no letter is among them."""
    position = llm_output.outputs[0].logprobs[0]
    letters = {}
    for one in position.values():
        letter = one.decoded_token.strip()
        if len(letter) == 1 and letter in LETTERS:
            letters[letter] = max(one.logprob, letters.get(letter, one.logprob))
    return max(letters, key=letters.get, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--questions", default=pathlib.Path(__file__).with_name("questions.jsonl"))
    parser.add_argument("--limit", type=int, default=None)
    arguments = parser.parse_args()
    with open(arguments.questions, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()][: arguments.limit]
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=200)
    with LLM(arguments.model) as llm:
        outputs = llm.generate([prompt_of(row) for row in rows], params, use_tqdm=False)
    answers = [chosen(output) for output in outputs]
    right = sum(answer == row["answer"] for answer, row in zip(answers, rows))
    unanswered = sum(answer is None for answer in answers)
    print(f"{right} of {len(rows)} right ({100 * right / len(rows):.1f} %), {unanswered} without a letter")


if __name__ == "__main__":
    main()
