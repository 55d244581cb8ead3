"""Columns of numpy, pandas and arrow; routing as arrays."""
import numpy
import pandas
import pyarrow
from conftest import PROMPTS
from klotski import SamplingParams, routing_trace

GREEDY = SamplingParams(temperature=0, max_tokens=4)


def test_columns_of_every_kind(llm):
    expected = [output.outputs[0].text for output in llm.generate(PROMPTS, GREEDY)]
    for column in (numpy.array(PROMPTS), pandas.Series(PROMPTS), pyarrow.array(PROMPTS)):
        assert [output.outputs[0].text for output in llm.generate(column, GREEDY)] == expected
    frame = llm.generate_column(pandas.DataFrame({"prompt": PROMPTS}), "prompt", GREEDY)
    assert frame["generated"].tolist() == expected
    table = pyarrow.table({"text": PROMPTS})
    for _ in range(2):  # adds the column, then replaces it
        table = llm.generate_column(table, "text", GREEDY, into="answer")
    assert table["answer"].to_pylist() == expected and table.num_columns == 2
    columns = llm.generate_column({"prompt": numpy.array(PROMPTS, dtype=object)}, sampling_params=GREEDY)
    assert columns["generated"].tolist() == expected


def test_routing_as_arrays(llm):
    trace = llm.routing_trace(PROMPTS)
    lengths = [len(output.prompt_token_ids) for output in llm.generate(PROMPTS, GREEDY)]
    assert numpy.bincount(trace.sequence).tolist() == lengths
    assert trace.position.tolist() == [position for length in lengths for position in range(length)]
    for layer, experts in trace.experts.items():
        assert experts.shape == (sum(lengths), 2) and experts.max() < trace.expert_counts[layer]
        assert numpy.isclose(trace.popularity(layer).sum(), 1)
    alone = routing_trace("tiny", PROMPTS[0], device="cpu")
    for layer, experts in alone.experts.items():
        assert (experts == trace.experts[layer][:lengths[0]]).all()
