"""Requests on their way through the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _engine
from .errors import Error, RequestError
from .outputs import CompletionOutput, Logprob, RequestOutput
from .params import SamplingParams

#: A text, its token ids, or a dict with one of "prompt" and "prompt_token_ids".
Prompt = str | list[int] | dict[str, Any]


def is_one_prompt(prompts: object) -> bool:
    """Whether this is a prompt and no collection of them."""
    if isinstance(prompts, (str, dict)):
        return True
    return isinstance(prompts, (list, tuple)) and bool(prompts) and all(isinstance(one, int) for one in prompts)


def as_iterable(prompts: Any) -> Iterable[Any]:
    """The prompts of a column of numpy, pandas or arrow as Python objects; others as they are."""
    for method in ("to_pylist", "tolist"):
        if hasattr(prompts, method):
            return getattr(prompts, method)()
    return prompts


@dataclasses.dataclass(eq=False)
class Task:
    """A prompt and its answers, as far as they are there."""

    output: RequestOutput
    params: SamplingParams
    chat: bool = False
    streamed: bool = False
    on_update: Callable[["Task"], None] = lambda task: None
    ids: list[int] = dataclasses.field(default_factory=list)  # of the requests that are unfinished

    def take(self, answer: CompletionOutput, update: _engine.Update, model: _engine.Model) -> None:
        answer.token_ids += update.tokens
        answer.text += update.text
        self._add_logprobs(answer, update, model)
        metrics = self.output.metrics
        metrics.first_token_seconds = metrics.first_token_seconds or update.first_token_seconds
        if update.finish:
            answer.error = update.error
            answer.finish_reason = {"length": "length", "failed": "error"}.get(update.finish, "stop")
            if update.finish == "stop_token" and answer.token_ids[-1] in (self.params.stop_token_ids or ()):
                answer.stop_reason = answer.token_ids[-1]
            metrics.seconds = update.seconds
            self.ids.remove(update.request)
            self.output.finished = not self.ids
        if self.streamed or self.output.finished:
            self.on_update(self)

    def fail(self, error: Error) -> None:
        error = error.with_traceback(None)  # its frames would keep the model as long as the output
        for answer in self.output.outputs:
            if not answer.finished():
                answer.finish_reason, answer.error = "error", error
        self.ids.clear()
        self.output.finished = True
        self.on_update(self)

    def _add_logprobs(self, answer: CompletionOutput, update: _engine.Update, model: _engine.Model) -> None:
        if self.params.logprobs is None:
            return
        answer.logprobs = answer.logprobs or []
        answer.cumulative_logprob = answer.cumulative_logprob or 0.0
        for token, (chosen, top) in zip(update.tokens, update.logprobs):
            position = {
                other: Logprob(logprob, rank, model.decode([other])) for rank, (other, logprob) in enumerate(top, 1)
            }
            position.setdefault(token, Logprob(chosen, None, model.decode([token])))
            answer.logprobs.append(position)
            answer.cumulative_logprob += chosen


class Tasks:
    """Makes tasks of prompts."""

    def __init__(self, model: _engine.Model) -> None:
        self._model = model
        self._made = 0

    def default_params(self) -> SamplingParams:
        """The sampling that the model suggests, with the seed and length of the command line."""
        suggested = self._model.suggested_sampling()
        return SamplingParams(
            temperature=suggested.temperature,
            top_k=suggested.top_k,
            top_p=suggested.top_p,
            min_p=suggested.min_p,
            repetition_penalty=suggested.repetition_penalty,
            seed=0,
            max_tokens=256,
        )

    def of(self, prompt: Prompt, params: SamplingParams, *, chat: bool = False) -> Task:
        """A task for a prompt; refuses what is no prompt."""
        if isinstance(prompt, dict):
            prompt = prompt["prompt_token_ids"] if "prompt_token_ids" in prompt else prompt.get("prompt")
        text = prompt if isinstance(prompt, str) else None
        if text is not None:
            ids = self._model.encode(text)
        elif isinstance(prompt, Iterable):
            ids = [int(token) for token in prompt]
        else:
            raise RequestError(f"prompt: expected a text or token ids, found {type(prompt).__name__}")
        if params.max_tokens is None:
            params = dataclasses.replace(params, max_tokens=max(1, self._model.positions() - len(ids)))
        number = self._made
        self._made += 1
        answers = [CompletionOutput(index) for index in range(params.n)]
        return Task(RequestOutput(str(number), text, ids, answers), params, chat)

    def refused(self, prompt: object, params: SamplingParams, error: Error) -> Task:
        """The task of a prompt that is refused."""
        text = prompt if isinstance(prompt, str) else None
        task = Task(RequestOutput(str(self._made), text, [], [CompletionOutput(0)]), params)
        self._made += 1
        task.fail(error)
        return task


def pairs(prompts: Iterable[Any], params: Any) -> Iterator[tuple[Any, SamplingParams]]:
    """Each prompt with its parameters, of which there is one set or one for each prompt."""
    if isinstance(params, SamplingParams):
        return ((prompt, params) for prompt in prompts)
    try:
        return zip(prompts, params, strict=True)
    except TypeError:
        raise RequestError(f"sampling_params: expected SamplingParams or a list, found {params!r}") from None
