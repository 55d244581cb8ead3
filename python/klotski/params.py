"""How the tokens of an answer are chosen and when it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from . import _engine
from .errors import RequestError

# Bounds of the numbers, as the command line has them.
_BOUNDS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "top_k": (-1, 1 << 24),
    "max_tokens": (1, 1 << 30),
    "n": (1, 1 << 20),
    "logprobs": (0, 1 << 20),
    "seed": (0, (1 << 63) - 1),
}
_MAY_BE_NONE = ("max_tokens", "logprobs", "seed")


@dataclasses.dataclass(kw_only=True)
class SamplingParams:
    """Parameters of a request, with the names and defaults of vLLM.

    Without a ``seed`` the tokens depend on the seed of the ``LLM`` and on how many requests it had before.
    """

    n: int = 1  #: answers to each prompt
    temperature: float = 1.0  #: 0 takes the most likely token
    top_p: float = 1.0
    top_k: int = 0  #: 0 or -1: all tokens
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int | None = 16  #: None: as many as the model has positions for
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None  #: alternatives whose probabilities are given, beside the chosen token

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if value is None or not least <= value <= most:
                raise RequestError(f"{name}: expected a number from {least} to {most}, found {value!r}")
        if any(not text for text in self._stop_texts()):
            raise RequestError("stop: expected some text, found none")

    def _stop_texts(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def _sampling(self, seed: int) -> _engine.Sampling:
        sampling = _engine.Sampling()
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            setattr(sampling, name, float(getattr(self, name)))
        sampling.top_k = max(self.top_k, 0)
        sampling.logit_bias = [(int(token), float(bias)) for token, bias in (self.logit_bias or {}).items()]
        sampling.seed = seed
        return sampling
