"""Batches over the workers of a Ray cluster: formats, file systems, killed workers."""
import json
import os
import subprocess
import sys
import warnings

import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
from conftest import PROMPTS
from klotski import RequestError, SamplingParams

ray = pytest.importorskip("ray")
import klotski.ray  # noqa: E402  (needs ray)

GREEDY = SamplingParams(temperature=0, max_tokens=4)
SHARE = {"CPU": 0.4}  # of a machine with one core or more: two workers and Ray's own tasks
ROWS = [{"id": number, "prompt": prompt} for number, prompt in enumerate(PROMPTS * 2)]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_worker_niceness"] = "0"  # tests that run beside these would starve workers
    ray.init(num_cpus=max(2, os.cpu_count() or 1), logging_level="ERROR", log_to_driver=False, include_dashboard=False,
             object_store_memory=100 << 20)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def expected(llm):
    return [output.outputs[0].text for output in llm.generate([row["prompt"] for row in ROWS], GREEDY, use_tqdm=False)]


def batch(source, output, **options):
    options = {"num_workers": 1, "resources": SHARE, "rows_per_part": 4, "progress": False, **options}
    return klotski.ray.batch(str(source), str(output), "tiny", sampling_params=GREEDY, device="cpu", **options)


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_lines(folder):
    return [json.loads(line) for path in sorted(folder.glob("part-*.jsonl")) for line in open(path, encoding="utf-8")]


def test_a_folder_of_lines_keeps_rows_and_goes_on(tmp_path, expected, capfd):
    source, output = tmp_path / "in", tmp_path / "out"
    (source / "more").mkdir(parents=True)
    write_lines(source / "a.jsonl", ROWS[:3])
    write_lines(source / "more" / "b.jsonl", ROWS[3:])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ray.util.annotations.RayDeprecationWarning)
        assert batch(source, output, num_workers=2, progress=True) == {"rows": len(ROWS), "failed": 0, "parts": 3}
    assert "Answered rows: 100%" in capfd.readouterr().err
    assert [(row["row"], row["id"], row["generated"]) for row in read_lines(output)] == [
        (number, number, text) for number, text in enumerate(expected)]
    first = output / "part-00000.jsonl"
    whole = first.read_bytes()
    first.unlink()
    (output / "part-00000.jsonl.0123.tmp").write_bytes(whole[:10])  # of a killed worker
    assert batch(source, output) == {"rows": 3, "failed": 0, "parts": 1}
    assert first.read_bytes() == whole and not list(output.glob("*.tmp"))
    with pytest.raises(RequestError, match="another job"):
        batch(source, output, into="answer")


def test_rows_without_a_prompt_fail_alone(tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out"
    write_lines(source, [ROWS[0], {"id": 1}, {"prompt": [10**6]}, ROWS[1]])
    assert batch(source, output) == {"rows": 4, "failed": 2, "parts": 1}
    assert [row["finish_reason"] for row in read_lines(output)] == ["length", "error", "error", "length"]
    assert "NoneType" in read_lines(output)[1]["error"]
    source.write_text('{"prompt": "A"}\n[1]\n')
    with pytest.raises(Exception, match="expected a JSON object a line"):
        batch(source, tmp_path / "other")


def test_parquet_keeps_the_types_of_its_columns(tmp_path, expected):
    schema = pyarrow.schema([("id", pyarrow.int16()), ("prompt", pyarrow.string()), ("empty", pyarrow.float32())])
    table = pyarrow.Table.from_pylist([{**row, "empty": None} for row in ROWS], schema)
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", row_group_size=6)
    output = tmp_path / "out"
    assert batch(tmp_path / "in.parquet", output, into="answer") == {"rows": len(ROWS), "failed": 0, "parts": 3}
    parts = sorted(output.glob("part-*.parquet"))
    schemas = [pyarrow.parquet.read_schema(part) for part in parts]
    assert len(parts) == 3 and schemas[0].equals(schemas[1]) and schemas[1].equals(schemas[2])
    written = pyarrow.dataset.dataset(parts).to_table()
    assert written.select(table.column_names).equals(table)
    assert written["answer"].to_pylist() == expected and written["row"].to_pylist() == list(range(len(ROWS)))
    write_lines(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(RequestError, match="one format"):
        batch(tmp_path, tmp_path / "other")


def test_other_file_systems(tmp_path, expected):
    bucket = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    write_lines(tmp_path / "in.jsonl", ROWS)
    assert batch("in.jsonl", "out", input_files=bucket, output_files=bucket)["rows"] == len(ROWS)
    assert [row["generated"] for row in read_lines(tmp_path / "out")] == expected
    assert batch((tmp_path / "in.jsonl").as_uri(), (tmp_path / "uri").as_uri())["rows"] == len(ROWS)
    assert read_lines(tmp_path / "uri") == read_lines(tmp_path / "out")
    fsspec = pytest.importorskip("fsspec")  # Ray Data needs it
    files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file")))
    assert batch("in.jsonl", "fsspec", input_files=files, output_files=files)["rows"] == len(ROWS)
    assert read_lines(tmp_path / "fsspec") == read_lines(tmp_path / "out")


@pytest.mark.parametrize("form", ["pandas", "pyarrow", "numpy"])
def test_an_actor_class_for_map_batches(form, expected):
    rows = ray.data.from_items(ROWS).map_batches(
        klotski.ray.Generator, fn_constructor_kwargs={"model": "tiny", "sampling_params": GREEDY, "device": "cpu"},
        compute=ray.data.ActorPoolStrategy(size=1), batch_size=4, batch_format=form, num_cpus=SHARE["CPU"])
    assert [row["generated"] for row in sorted(rows.take_all(), key=lambda row: row["id"])] == expected


def test_more_workers_than_nodes_are_refused(tmp_path):
    write_lines(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(RequestError, match="nodes of the cluster"):
        batch(tmp_path / "in.jsonl", tmp_path / "out", num_workers=2, resources=None)


def test_killed_workers_lose_no_row():
    check = [sys.executable, os.path.join(os.path.dirname(__file__), "ray_check.py"), "--rows", "60", "--workers", "2",
             "--kills", "2"]
    ended = subprocess.run(check, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "2 killed" in ended.stdout and "equal bytes" in ended.stdout
