"""Results of requests, with the names of vLLM."""

from __future__ import annotations

import dataclasses
from typing import Any

from .errors import Error


@dataclasses.dataclass
class Logprob:
    """The logarithm of a token's probability by the model's own logits."""

    logprob: float
    rank: int | None  #: 1 is the most likely token; None: not among the alternatives
    decoded_token: str


@dataclasses.dataclass
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None  #: by token of the answer
    finish_reason: str | None = None  #: "stop", "length", "error"; None: not finished
    stop_reason: int | None = None  #: the token of `stop_token_ids` that ended the answer
    error: Error | None = None  #: where `finish_reason` is "error"

    def finished(self) -> bool:
        """Whether no more tokens come."""
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestMetrics:
    """Seconds since the request was submitted."""

    first_token_seconds: float = 0.0  #: until the first answer had a token
    seconds: float = 0.0  #: until the last answer was complete


@dataclasses.dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    metrics: RequestMetrics = dataclasses.field(default_factory=RequestMetrics)

    def to_dict(self) -> dict[str, Any]:
        """The output as plain dicts, lists, numbers and texts."""
        result = dataclasses.asdict(dataclasses.replace(self, outputs=[]))
        for output in self.outputs:
            plain = dataclasses.asdict(dataclasses.replace(output, error=None))
            plain["error"] = None if output.error is None else str(output.error)
            result["outputs"].append(plain)
        return result

    def _raise_error(self) -> None:
        """Raises the error of an answer, if there is one. The exception is a new object: the traceback of one that stays
        in the output would keep the frames of its callers, and the model with them."""
        for output in self.outputs:
            if output.error is not None:
                raise type(output.error)(*output.error.args)
