"""Requests that are awaited."""
import asyncio

import klotski
import pytest
from conftest import PROMPTS
from klotski import AsyncLLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=8)


async def last(outputs):
    output = None
    async for output in outputs:
        pass
    return output


def test_requests_run_together_and_leave_early(llm):
    expected = [output.outputs[0].text for output in llm.generate(PROMPTS, GREEDY)]

    async def main():
        async with AsyncLLM("tiny", device="cpu", max_model_len=256) as model:
            outputs = await asyncio.gather(*(last(model.generate(prompt, GREEDY)) for prompt in PROMPTS))
            assert [output.outputs[0].text for output in outputs] == expected
            pieces = 0
            stream = model.generate(PROMPTS[0], SamplingParams(max_tokens=200, ignore_eos=True))
            async for _ in stream:
                pieces += 1
                if pieces == 2:
                    break
            await stream.aclose()
            assert not model._llm._answers
            cancelled = asyncio.create_task(last(model.generate(PROMPTS[0], SamplingParams(max_tokens=200, ignore_eos=True))))
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(klotski.RequestError):
                await last(model.generate([10**6], GREEDY))
            # Longer than planned for: waits for a plan of its own.
            longer = await last(model.generate(PROMPTS[0], SamplingParams(max_tokens=300, ignore_eos=True)))
            assert len(longer.outputs[0].token_ids) == 300

    asyncio.run(main())
