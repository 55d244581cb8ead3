"""Which experts tokens go to, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy


@dataclasses.dataclass
class RoutingTrace:
    """The experts of every token of some texts, tokens in the order of their texts."""

    model: str
    sequence: "numpy.ndarray"  #: [token], the text
    position: "numpy.ndarray"  #: [token], in its text
    token: "numpy.ndarray"  #: [token], its id
    experts: "dict[int, numpy.ndarray]"  #: by layer with a router: [token, experts a token], best first
    expert_counts: dict[int, int]  #: by layer with a router: experts to choose from

    def popularity(self, layer: int) -> "numpy.ndarray":
        """Share of the layer's choices that went to each expert."""
        import numpy

        counts = numpy.bincount(self.experts[layer].ravel(), minlength=self.expert_counts[layer])
        return counts / max(counts.sum(), 1)

    @classmethod
    def _of(cls, routed: dict[str, Any]) -> "RoutingTrace":
        import numpy

        sequence = numpy.frombuffer(routed["sequence"], numpy.uint32)
        position = numpy.frombuffer(routed["position"], numpy.uint32)
        order = numpy.lexsort((position, sequence))
        choices = numpy.frombuffer(routed["choices"], numpy.uint16).reshape(len(sequence), -1)[order]
        ends = numpy.cumsum([top_k for _, _, top_k in routed["layers"]])
        parts = numpy.split(choices, ends[:-1], axis=1)
        return cls(
            model=routed["model"],
            sequence=sequence[order],
            position=position[order],
            token=numpy.frombuffer(routed["token"], numpy.int32)[order],
            experts={layer: part for (layer, _, _), part in zip(routed["layers"], parts)},
            expert_counts={layer: experts for layer, experts, _ in routed["layers"]},
        )


def routing_trace(model: str, prompts: Sequence[Any] | str, **options: Any) -> RoutingTrace:
    """The experts that the tokens of some texts go to; ``options`` are those of ``LLM``."""
    from .llm import LLM

    with LLM(model, **options) as llm:
        return llm.routing_trace(prompts)
