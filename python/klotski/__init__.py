"""Offline batches of Mixture-of-Experts language models that are larger than fast memory.

>>> from klotski import LLM, SamplingParams
>>> with LLM("tiny", ram="3GiB") as llm:
...     outputs = llm.generate(["Hello, my name is"], SamplingParams(temperature=0, max_tokens=8))
"""

from . import errors
from ._engine import version as __version__
from .aio import AsyncLLM
from .errors import (
    DeviceLostError,
    DeviceUnavailableError,
    DoesNotFitError,
    Error,
    InternalError,
    ModelError,
    RequestError,
)
from .llm import LLM
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from .params import SamplingParams
from .plan import Plan
from .routing import RoutingTrace, routing_trace

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "DeviceLostError",
    "DeviceUnavailableError",
    "DoesNotFitError",
    "Error",
    "InternalError",
    "Logprob",
    "ModelError",
    "Plan",
    "RequestError",
    "RequestMetrics",
    "RequestOutput",
    "RoutingTrace",
    "SamplingParams",
    "__version__",
    "errors",
    "routing_trace",
]
