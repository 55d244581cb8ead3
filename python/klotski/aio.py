"""The engine for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import AsyncIterator
from typing import Any

from .llm import LLM, snapshot
from .outputs import RequestOutput
from .params import SamplingParams
from .requests import Prompt, Task


class AsyncLLM:
    """An ``LLM`` whose requests are awaited: they join and leave between two passes.

    Memory is planned for ``max_num_seqs`` requests of ``max_model_len`` tokens; a longer one waits until the others
    are done and a new plan can be made. To be used on one event loop.
    """

    def __init__(self, model: str | os.PathLike[str], *, max_num_seqs: int = 16, max_model_len: int = 2048,
                 **options: Any) -> None:
        """As ``LLM``, with its options."""
        self._llm = LLM(model, max_num_seqs=max_num_seqs, max_model_len=max_model_len, **options)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "klotski")
        self._driver: asyncio.Task[None] | None = None

    async def generate(self, prompt: Prompt, sampling_params: SamplingParams | None = None,
                       ) -> AsyncIterator[RequestOutput]:
        """Yields the output so far after every pass, as far as the loop keeps up. Leaving the loop cancels it."""
        llm = self._llm
        task = llm._tasks.of(prompt, sampling_params or llm.get_default_sampling_params())
        task.streamed = True
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: Task) -> None:
            loop.call_soon_threadsafe(news.set)

        task.on_update = tell
        try:
            llm._submit(task)
            if self._driver is None or self._driver.done():
                self._driver = asyncio.create_task(self._drive())
            finished = False
            while not finished:
                await news.wait()
                news.clear()
                with llm._turn:
                    output = snapshot(task)
                output._raise_error()
                yield output
                finished = output.finished
        finally:
            llm._cancel([task])

    async def close(self) -> None:
        """Gives all memory back; unfinished requests fail."""
        await asyncio.get_running_loop().run_in_executor(None, self._llm.close)
        self._thread.shutdown()

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _drive(self) -> None:
        while self._llm._answers:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._pass)

    def _pass(self) -> None:
        with self._llm._turn:
            if self._llm._answers:
                self._llm._step()
