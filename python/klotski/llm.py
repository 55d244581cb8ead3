"""A model that answers the prompts of a program."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from . import _engine
from .errors import Error, RequestError
from .outputs import CompletionOutput, RequestOutput
from .params import SamplingParams
from .plan import Plan
from .requests import Prompt, Task, Tasks, as_iterable, is_one_prompt, pairs
from .routing import RoutingTrace

_log = logging.getLogger("klotski")

#: Prompts of an iterator that are read before the first is computed, and by which its work is planned.
_LOOK_AHEAD = 512

Size = int | str
Errors = Literal["raise", "return"]


def _bytes(name: str, size: Size | None) -> int | None:
    if size is None or isinstance(size, int):
        return size
    count = _engine.parse_size(size)
    if count is None:
        raise RequestError(f'{name}: expected a size such as "3GiB" or a number of bytes, found {size!r}')
    return count


class LLM:
    """A model in this process.

    Opening reads no weight: the first call plans its memory for the prompts it has, and later calls that need more
    plan anew. Threads may share an ``LLM``; their prompts run together. Several may be open at once.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        ram: Size | None = None,
        vram: Size | None = None,
        strategy: str = "auto",
        precision: Literal["bf16", "f32"] = "bf16",
        device: str = "auto",
        attention: Literal["auto", "cpu", "gpu"] = "auto",
        kv_limit: Size | None = None,
        kv_spill: str | os.PathLike[str] = "",
        kernels: Literal["cpu", "reference"] = "cpu",
        micro_batch: int | None = None,
        n_batches: int | None = None,
        draft_tokens: int = 0,
        max_num_seqs: int = 1,
        max_model_len: int | None = None,
        seed: int = 0,
    ) -> None:
        """Opens a folder, a GGUF file, a bundled name (``tiny``) or a repository id of the local Hugging Face cache.

        ``ram`` and ``vram`` bound what the engine takes, in bytes or as "3GiB"; what the interpreter has besides does
        not count. ``max_num_seqs`` and ``max_model_len`` (prompt and answer) are planned for at least. The others are
        the options of the command line; with ``draft_tokens`` up to that many tokens are drafted from the text so far
        and verified in one pass; the tokens stay the same, on a GPU by the rule for bf16 products.
        """
        limits = _engine.Limits()
        limits.ram, limits.vram, limits.kv_limit = _bytes("ram", ram), _bytes("vram", vram), _bytes("kv_limit", kv_limit)
        limits.kv_spill, limits.device = os.fspath(kv_spill), device
        limits.strategy, limits.precision, limits.attention, limits.kernels = strategy, precision, attention, kernels
        limits.micro_batch, limits.n_batches = micro_batch, n_batches
        if not 0 <= draft_tokens <= 64:
            raise RequestError(f"draft_tokens: expected 0 to 64, found {draft_tokens}")
        limits.draft_tokens = draft_tokens
        limits.sequences, limits.tokens = max_num_seqs, max_model_len or 0
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "limits")}
        self._model = _engine.Model(os.fspath(model), limits)
        self._process = os.getpid()
        self._tasks = Tasks(self._model)
        self._seeds = itertools.count(seed)
        self._turn = threading.Condition()
        self._driving = False  # a thread computes
        self._answers: dict[int, tuple[Task, CompletionOutput]] = {}  # of unfinished requests
        self._log_remarks()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._arguments,)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives all memory back; requests that run in other threads fail. May be called again."""
        if os.getpid() != self._process:  # a fork, in which nothing runs
            self._model.close()
            return
        with self._turn:
            self._drop([task for task, _ in self._answers.values()], RequestError("the model was closed"))
            while self._driving:
                self._turn.wait()
            self._model.close()

    def get_default_sampling_params(self) -> SamplingParams:
        """The sampling that the model suggests, with the seed (0) and length (256) of the command line."""
        return self._tasks.default_params()

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        errors: Errors = "raise",
    ) -> list[RequestOutput]:
        """Answers prompts and returns the outputs in their order.

        Prompts are texts, lists of token ids, dicts with ``prompt`` or ``prompt_token_ids``, or a column of numpy,
        pandas or arrow. ``errors="return"`` gives outputs whose ``finish_reason`` is "error" in place of an exception.
        """
        return list(self.iterate(prompts, sampling_params, use_tqdm=use_tqdm, errors=errors))

    def chat(
        self,
        messages: list[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: list[dict[str, Any]] | None = None,
        use_tqdm: bool = True,
        errors: Errors = "raise",
    ) -> list[RequestOutput]:
        """Answers a conversation, or a list of them, by the model's chat template."""
        conversations = messages if messages and isinstance(messages[0], list) else [messages]
        ids = [self._model.encode_chat(json.dumps(one), json.dumps(tools)) for one in conversations]
        return list(self.iterate(ids, sampling_params, use_tqdm=use_tqdm, errors=errors, _chat=True))

    def iterate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        ordered: bool = True,
        use_tqdm: bool = False,
        errors: Errors = "raise",
        _chat: bool = False,
    ) -> Iterator[RequestOutput]:
        """Like ``generate``, one output at a time: in order, or as they finish. An iterator is read as needed."""
        if is_one_prompt(prompts):
            prompts = [prompts]  # type: ignore[list-item]
        prompts = as_iterable(prompts)
        known = prompts if hasattr(prompts, "__len__") else None
        made = self._make(prompts, sampling_params or self.get_default_sampling_params(), errors, _chat)
        first = list(itertools.islice(made, None if known is not None else _LOOK_AHEAD))
        total = len(known) if known is not None else None  # type: ignore[arg-type]
        with _progress(use_tqdm, total) as tell:
            for task in self._run(first, made, ordered):
                tell()
                if errors == "raise":
                    task.output._raise_error()
                yield task.output

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Answers one prompt; yields its output so far after every pass."""
        task = self._tasks.of(prompt, sampling_params or self.get_default_sampling_params())
        task.streamed = True
        news: list[Task] = []
        task.on_update = news.append
        self._expect([task])
        try:
            self._submit(task)
            while not task.output.finished or news:
                self._advance(lambda: bool(news))
                with self._turn:
                    news.clear()
                    output = snapshot(task)
                output._raise_error()
                yield output
        finally:
            self._cancel([task])

    def plan(self, *, sequences: int = 64, prompt_tokens: int = 512, max_tokens: int = 32) -> Plan:
        """How such work would run and what it would take; measures the machine the first time.

        Refused while requests run; a loaded model is loaded again by the next call.
        """
        tokens = prompt_tokens + max_tokens
        if tokens > self._model.positions():
            raise RequestError(f"plan: {tokens} tokens of prompt and answer, the model has {self._model.positions()}")
        with self._alone():
            return Plan(json.loads(self._model.plan(sequences, prompt_tokens, max_tokens)))

    def report(self) -> dict[str, Any] | None:
        """Counters since the last load: passes, tokens, drafts, requests for experts and those found in memory."""
        with self._alone():
            return json.loads(self._model.report())

    def routing_trace(self, prompts: Prompt | Iterable[Prompt]) -> RoutingTrace:
        """The experts that the tokens of some texts go to."""
        texts = [prompts] if is_one_prompt(prompts) else as_iterable(prompts)
        params = self.get_default_sampling_params()
        ids = [self._tasks.of(text, params).output.prompt_token_ids for text in texts]  # type: ignore[arg-type]
        with self._alone():
            return RoutingTrace._of(self._model.routed_tokens(ids))

    def generate_column(self, table: Any, column: str = "prompt", sampling_params: SamplingParams | None = None,
                        *, into: str = "generated", use_tqdm: bool = False) -> Any:
        """A pandas DataFrame, an arrow Table or a dict of columns, with a column of answers added."""
        from .columns import with_column

        answers = self.generate(table[column], sampling_params, use_tqdm=use_tqdm)
        return with_column(table, into, [output.outputs[0].text for output in answers])

    # Threads that wait for outputs take turns to compute; each pass serves the requests of all.

    def _make(self, prompts: Iterable[Any], params: Any, errors: Errors, chat: bool) -> Iterator[Task]:
        for prompt, own in pairs(prompts, params):
            try:
                yield self._tasks.of(prompt, own, chat=chat)
            except Error as error:
                if errors == "raise":
                    raise
                yield self._tasks.refused(prompt, own, error)

    def _run(self, first: list[Task], more: Iterator[Task], ordered: bool) -> Iterator[Task]:
        self._expect(first)
        source = itertools.chain(first, more)
        open_tasks: collections.OrderedDict[int, Task] = collections.OrderedDict()
        ended: collections.deque[Task] = collections.deque()
        exhausted = False
        try:
            while True:
                while not exhausted and self._model.wants_more():
                    task = next(source, None)
                    exhausted = task is None
                    if task is not None:
                        task.on_update = ended.append
                        open_tasks[id(task)] = task
                        if task.output.finished:
                            ended.append(task)
                        else:
                            self._submit(task)
                if not open_tasks:
                    return
                self._advance(lambda: bool(ended) or (not exhausted and self._model.wants_more()))
                while ended:
                    task = ended.popleft()
                    if not ordered:
                        del open_tasks[id(task)]
                        yield task
                while ordered and open_tasks and (task := next(iter(open_tasks.values()))).output.finished:
                    del open_tasks[id(task)]
                    yield task
        finally:
            self._cancel(open_tasks.values())

    def _expect(self, tasks: Sequence[Task]) -> None:
        tasks = [task for task in tasks if not task.output.finished]
        if not tasks:
            return
        prompts = [len(task.output.prompt_token_ids) for task in tasks]
        answers = [task.params.max_tokens for task in tasks]
        typical = (sum(prompts) + sum(answers)) // len(tasks)
        self._model.expect(sum(task.params.n for task in tasks), max(prompts), max(answers), typical)

    def _submit(self, task: Task) -> None:
        params = task.params
        try:
            for answer in task.output.outputs:
                seed = next(self._seeds) if params.seed is None else params.seed + answer.index
                with self._turn:
                    request = self._model.submit(
                        task.output.prompt_token_ids, params._sampling(seed), params.max_tokens, params._stop_texts(),
                        list(params.stop_token_ids or ()), params.ignore_eos, params.logprobs, task.chat, task.streamed)
                    task.ids.append(request)
                    self._answers[request] = (task, answer)
        except Error as error:
            with self._turn:
                self._drop([task], error)

    def _cancel(self, tasks: Iterable[Task]) -> None:
        with self._turn:
            for task in tasks:
                for request in task.ids:
                    self._answers.pop(request, None)
                    self._model.cancel(request)
                task.ids.clear()

    def _drop(self, tasks: Iterable[Task], error: Error) -> None:
        for task in list(tasks):
            for request in list(task.ids):
                self._answers.pop(request, None)
                self._model.cancel(request)
            if not task.output.finished:
                task.fail(error)

    def _advance(self, done: Callable[[], bool]) -> None:
        """Computes, or waits for the thread that does, until `done()`."""
        with self._turn:
            while not done():
                if self._driving:
                    self._turn.wait()
                else:
                    self._step()

    def _step(self) -> None:
        self._driving = True
        self._turn.release()
        updates: list[_engine.Update] = []
        failure: Error | None = None
        try:
            updates = self._model.step()
        except Error as error:
            failure = error
        finally:
            self._turn.acquire()
            self._driving = False
            self._turn.notify_all()
        self._log_remarks()
        for update in updates:
            if update.request in self._answers:
                task, answer = self._answers[update.request]
                if update.finish:
                    del self._answers[update.request]
                task.take(answer, update, self._model)
        if failure is not None:
            self._drop([task for task, _ in self._answers.values()], failure)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Waits until no thread computes, and keeps others from it."""
        with self._turn:
            while self._driving:
                self._turn.wait()
            yield

    def _log_remarks(self) -> None:
        for remark in self._model.take_remarks():
            _log.info("%s", remark)


def snapshot(task: Task) -> RequestOutput:
    """The output so far, which does not change any more."""
    answers = [
        dataclasses.replace(answer, token_ids=list(answer.token_ids), logprobs=copy.copy(answer.logprobs))
        for answer in task.output.outputs
    ]
    return dataclasses.replace(task.output, outputs=answers, metrics=dataclasses.replace(task.output.metrics))


def _open(arguments: dict[str, Any]) -> LLM:
    return LLM(**arguments)


class _progress:
    """A bar of finished prompts, or none."""

    def __init__(self, shown: bool, total: int | None) -> None:
        self._bar = None
        if shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc="Processed prompts", dynamic_ncols=True)

    def __enter__(self) -> Callable[[], Any]:
        return self._bar.update if self._bar is not None else lambda: None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
