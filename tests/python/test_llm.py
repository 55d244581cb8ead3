"""Texts, ids, iterators, logprobs, threads, processes, errors: one model in one process."""
import gc
import json
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import klotski
import pytest
from conftest import PROMPTS, plain_build
from klotski import LLM, SamplingParams, _engine

GREEDY = SamplingParams(temperature=0, max_tokens=8)


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def run_python(program, **more):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300,
                          **more)


@plain_build
def test_the_command_line_gives_the_same_tokens(llm):
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=20), use_tqdm=False)[0]
    command = [sys.executable, "-m", "klotski", "run", "tiny", "-p", PROMPTS[0], "-n", "20", "--temperature", "0", "--json",
               "--device", "cpu"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert output.outputs[0].text == told["text"]
    assert len(output.outputs[0].token_ids) == told["completion_tokens"]
    assert output.outputs[0].finish_reason == told["finish_reason"]


def test_prompts_of_every_form_give_the_same_answers(llm):
    expected = llm.generate(PROMPTS, GREEDY)
    ids = [output.prompt_token_ids for output in expected]
    assert texts(llm.generate(ids, GREEDY)) == texts(expected)
    assert texts(llm.generate([{"prompt_token_ids": one} for one in ids], GREEDY)) == texts(expected)
    assert texts(llm.generate(({"prompt": one} for one in PROMPTS), [GREEDY] * len(PROMPTS))) == texts(expected)
    finished = {output.prompt: output for output in llm.iterate(iter(PROMPTS), GREEDY, ordered=False)}
    assert texts(finished[prompt] for prompt in PROMPTS) == texts(expected)
    assert all(output.finished and output.metrics.seconds >= output.metrics.first_token_seconds > 0 for output in expected)


def test_drafted_tokens_change_no_answer(llm):
    prompts = ["one two one two one two", *PROMPTS]
    expected = texts(llm.generate(prompts, GREEDY))
    with LLM("tiny", device="cpu", draft_tokens=4) as drafting:
        assert texts(drafting.generate(prompts, GREEDY)) == expected
        assert drafting.report()["drafted_tokens"] >= drafting.report()["accepted_tokens"]
        assert drafting.plan(sequences=2, prompt_tokens=8, max_tokens=8)["policy"]["draft_tokens"] == 4
    with pytest.raises(klotski.RequestError, match="draft_tokens"):
        LLM("tiny", draft_tokens=65)


def test_many_prompts_of_an_iterator_come_in_order(llm):
    prompts = [f"Number {number}" for number in range(700)]
    outputs = list(llm.iterate(iter(prompts), SamplingParams(temperature=0, max_tokens=1)))
    assert [output.prompt for output in outputs] == prompts


def test_several_answers_with_seeds_logprobs_and_stops(llm):
    params = SamplingParams(n=3, temperature=1, seed=5, max_tokens=12, logprobs=2)
    output = llm.generate(PROMPTS[0], params)[0]
    again = llm.generate(PROMPTS[0], params)[0]
    assert [one.token_ids for one in output.outputs] == [one.token_ids for one in again.outputs]
    assert len({one.text for one in output.outputs}) > 1
    for answer in output.outputs:
        assert len(answer.logprobs) == len(answer.token_ids)
        assert all(token in position and len(position) in (2, 3) for token, position in zip(answer.token_ids, answer.logprobs))
        own = sum(position[token].logprob for token, position in zip(answer.token_ids, answer.logprobs))
        assert answer.cumulative_logprob == pytest.approx(own)
    whole = llm.generate(PROMPTS[0], GREEDY)[0].outputs[0]
    cut = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=8, stop=whole.text[3:6]))[0].outputs[0]
    assert cut.text == whole.text[:whole.text.index(whole.text[3:6])] and cut.finish_reason == "stop"
    token = SamplingParams(temperature=0, max_tokens=8, stop_token_ids=[whole.token_ids[2]])
    assert llm.generate(PROMPTS[0], token)[0].outputs[0].stop_reason == whole.token_ids[2]


def test_without_a_limit_answers_fill_the_context():
    with LLM("tiny", device="cpu") as model:
        params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        output = model.generate(PROMPTS[0], params, use_tqdm=False)[0]
    positions = json.loads((pathlib.Path(klotski.__file__).parent / "models" / "tiny-mixtral" / "config.json").read_text())
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == positions["max_position_embeddings"]
    with pytest.raises(klotski.RequestError, match="temperature"):
        SamplingParams(temperature=None)


def test_streams_and_chats(llm):
    pieces = [output.outputs[0].text for output in llm.stream(PROMPTS[1], GREEDY)]
    assert len(pieces) > 1 and pieces[-1] == llm.generate(PROMPTS[1], GREEDY)[0].outputs[0].text
    assert all(later.startswith(earlier) for earlier, later in zip(pieces, pieces[1:]))
    hello = [{"role": "user", "content": "Hello"}]
    one, two = llm.chat([hello, hello], GREEDY)
    assert one.outputs[0].text == two.outputs[0].text == llm.chat(hello, GREEDY)[0].outputs[0].text


def test_errors_are_exceptions_by_kind(llm, tmp_path):
    with pytest.raises(klotski.ModelError):
        LLM("no-such-model")
    with pytest.raises(klotski.DoesNotFitError) as too_little:
        LLM("tiny", ram="1MiB")
    assert isinstance(too_little.value, MemoryError)
    with pytest.raises(klotski.DeviceUnavailableError):
        LLM("tiny", device="77")
    for wrong in ({"strategy": "fast"}, {"ram": "much"}, {"precision": "f16"}, {"vram": 1 << 30, "device": "cpu"}):
        with pytest.raises(klotski.RequestError):
            LLM("tiny", **wrong)
    with pytest.raises(ValueError, match="temperature"):
        SamplingParams(temperature=-1)
    with pytest.raises(klotski.RequestError):
        llm.generate([[10**6]], GREEDY)
    with pytest.raises(klotski.RequestError):
        llm.generate([None], GREEDY)
    outputs = llm.generate([PROMPTS[0], [10**6], PROMPTS[1]], GREEDY, errors="return")
    assert [output.outputs[0].finish_reason for output in outputs] == ["length", "error", "length"]
    assert isinstance(outputs[1].outputs[0].error, klotski.RequestError)


def test_plans_reports_and_outputs_are_dicts(llm):
    plan = llm.plan(sequences=4, prompt_tokens=16, max_tokens=4)
    assert plan["work"] == {"sequences": 4, "prompt_tokens": 16, "generated_tokens": 4}
    assert "<table>" in plan._repr_html_()
    output = llm.generate(PROMPTS[0], GREEDY)[0]
    assert json.loads(json.dumps(output.to_dict()))["outputs"][0]["token_ids"] == output.outputs[0].token_ids
    assert llm.report()["tokens"] > 0
    with pytest.raises(klotski.RequestError):
        llm.plan(prompt_tokens=10**6)


def test_a_closed_model_says_so_and_a_pickled_one_opens_again():
    with LLM("tiny", device="cpu") as model:
        expected = texts(model.generate(PROMPTS[:1], GREEDY))
        with pickle.loads(pickle.dumps(model)) as other:
            assert texts(other.generate(PROMPTS[:1], GREEDY)) == expected
    with pytest.raises(klotski.RequestError, match="closed"):
        model.generate(PROMPTS[:1], GREEDY)
    model.close()


def test_threads_share_a_model_and_the_lock_is_free(llm):
    expected = texts(llm.generate(PROMPTS, GREEDY))
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: texts(llm.generate([PROMPTS[i]], GREEDY))}))
               for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i][0] for i in range(len(PROMPTS))] == expected

    ticks, ended = [], threading.Event()
    work = threading.Thread(target=lambda: (llm.generate(PROMPTS * 20, SamplingParams(max_tokens=40, ignore_eos=True)),
                                            ended.set()))
    work.start()
    while not ended.is_set():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    work.join()
    assert len(ticks) > 5


def test_several_models_in_a_process(llm):
    with LLM("tiny", device="cpu", precision="f32") as other:
        assert len(texts(other.generate(PROMPTS, GREEDY))) == len(texts(llm.generate(PROMPTS, GREEDY)))


@plain_build
def test_the_limit_counts_what_the_engine_adds():
    ended = run_python("""
        import resource
        ballast = bytearray(b"x" * (300 << 20))
        from klotski import LLM, SamplingParams
        def resident():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10
        before = resident()
        with LLM("tiny", device="cpu", ram="200MiB") as llm:
            llm.generate(["A"] * 50, SamplingParams(max_tokens=20), use_tqdm=False)
            assert llm.report()["limit_bytes"] > 300 << 20  # the ballast was there before
        assert resident() - before < 200 << 20, resident() - before
    """)
    assert ended.returncode == 0, ended.stderr


def test_ctrl_c_stops_and_leaves_the_engine_usable():
    ended = run_python("""
        import os, signal, threading, time
        from klotski import LLM, SamplingParams
        llm = LLM("tiny", device="cpu")
        short = SamplingParams(temperature=0, max_tokens=4)
        expected = llm.generate("The river", short, use_tqdm=False)[0].outputs[0].text
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            llm.generate(["The river"] * 5000, SamplingParams(max_tokens=400, ignore_eos=True), use_tqdm=False)
            raise SystemExit("was not stopped")
        except KeyboardInterrupt:
            pass
        assert not llm._answers
        assert llm.generate("The river", short, use_tqdm=False)[0].outputs[0].text == expected
    """)
    assert ended.returncode == 0, ended.stderr


def _answer(model, queue):
    try:
        queue.put(texts(model.generate(PROMPTS[:1], GREEDY, use_tqdm=False)))
    except klotski.Error as error:
        queue.put(repr(error))
    with LLM("tiny", device="cpu") as own:
        queue.put(texts(own.generate(PROMPTS[:1], GREEDY, use_tqdm=False)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(llm, method):
    expected = texts(llm.generate(PROMPTS[:1], GREEDY))
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_answer, args=(llm, queue))
    process.start()
    handed_over, own = queue.get(timeout=120), queue.get(timeout=120)
    process.join(60)
    assert process.exitcode == 0
    assert own == expected
    if method == "spawn":
        assert handed_over == expected
    else:
        assert "fork" in handed_over
    assert texts(llm.generate(PROMPTS[:1], GREEDY)) == expected


@plain_build
def test_a_thousand_models_leave_nothing_behind():
    ended = run_python("""
        import gc
        from klotski import LLM, SamplingParams
        def resident():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) << 10
        def open_and_close(times, generates):
            for number in range(times):
                llm = LLM("tiny", device="cpu")
                if generates:
                    llm.generate("A", SamplingParams(max_tokens=1), use_tqdm=False)
                if number % 2:
                    llm.close()
                del llm
            gc.collect()
        open_and_close(20, True)
        before = resident()
        open_and_close(30, True)
        open_and_close(970, False)
        assert resident() - before < 50 << 20, resident() - before
    """)
    assert ended.returncode == 0, ended.stderr


def test_no_cycle_keeps_a_model():
    gc.collect()
    gc.disable()
    try:
        model = LLM("tiny", device="cpu")
        gone = weakref.ref(model)
        kept = model.generate([PROMPTS[0], [10**6]], GREEDY, use_tqdm=False, errors="return")
        for wrong in ([[10**6]], [None]):
            with pytest.raises(klotski.RequestError):
                model.generate(wrong, GREEDY, use_tqdm=False)
        next(iter(model.stream(PROMPTS[0], GREEDY)))
        del model
        assert gone() is None and kept[1].outputs[0].error is not None
    finally:
        gc.enable()


def test_types_for_editors_name_what_is_there():
    stub = pathlib.Path(klotski.__file__).with_name("_engine.pyi").read_text(encoding="utf-8")
    for name in ("Update", "Sampling", "Limits", "Model"):
        members = [one for one in vars(getattr(_engine, name)) if not one.startswith("_")]
        part = stub.split(f"class {name}:")[1].split("\nclass ")[0]
        for member in members:
            assert f"def {member}(" in part or f"    {member}: " in part, f"{name}.{member}"
    assert pathlib.Path(klotski.__file__).with_name("py.typed").exists()


def test_the_whole_interface_has_docstrings():
    for name in klotski.__all__:
        thing = getattr(klotski, name)
        if callable(thing):
            assert thing.__doc__, name
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                assert member.startswith("_") or not callable(value) or value.__doc__, f"{name}.{member}"
