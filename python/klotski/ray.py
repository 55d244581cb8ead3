"""Batches over the machines of a Ray cluster, on Ray Data (``pip install ray[data]``)."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
import pyarrow.fs
import pyarrow.parquet
import ray
import ray.data

from .columns import with_column
from .errors import RequestError
from .llm import LLM
from .params import SamplingParams


class Generator:
    """An actor class for ``Dataset.map_batches``: an engine that adds a column of answers to a column of prompts.

    >>> pool = ray.data.ActorPoolStrategy(size=2)
    >>> dataset.map_batches(Generator, fn_constructor_kwargs={"model": "tiny"}, compute=pool, batch_size=256)
    """

    def __init__(self, model: str, sampling_params: SamplingParams | None = None, column: str = "prompt",
                 into: str = "generated", **options: Any) -> None:
        """Opens the model; ``options`` are those of ``LLM``."""
        self._llm = LLM(model, **options)
        self._params, self._column, self._into = sampling_params, column, into

    def __call__(self, rows: Any) -> Any:
        """The rows with their answers."""
        return self._llm.generate_column(rows, self._column, self._params, into=self._into)


@dataclasses.dataclass(frozen=True)
class _Part:
    """Consecutive rows of an input file, and the number of the first in all of the input."""

    file: str
    first_row: int
    rows: int
    start: int  # of JSONL: the byte of the first row; of Parquet: its row in the row group
    row_group: int = 0


def _file_system(path: str, given: pyarrow.fs.FileSystem | None) -> tuple[pyarrow.fs.FileSystem, str]:
    if given is not None:
        return given, path
    if "://" in path:
        return pyarrow.fs.FileSystem.from_uri(path)
    return pyarrow.fs.LocalFileSystem(), path


def _input_files(files: pyarrow.fs.FileSystem, path: str) -> list[str]:
    found = files.get_file_info(path)
    if found.type == pyarrow.fs.FileType.Directory:
        inside = files.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
        names = sorted(one.path for one in inside if one.is_file and one.path.endswith((".jsonl", ".parquet")))
    else:
        names = [path] if found.is_file else []
    if not names:
        raise RequestError(f"input: expected a file or a folder with .jsonl or .parquet files, found none at {path}")
    if 0 < sum(name.endswith(".parquet") for name in names) < len(names):
        raise RequestError(f"input: expected files of one format, found .jsonl and .parquet in {path}")
    return names


def _parts_of_jsonl(files: pyarrow.fs.FileSystem, name: str, most: int, row: int) -> Iterator[_Part]:
    start = rows = offset = 0
    with files.open_input_file(name) as stream, io.BufferedReader(stream, 1 << 20) as buffered:
        for line in buffered:
            offset += len(line)
            rows += bool(line.strip())
            if rows == most:
                yield _Part(name, row, rows, start)
                start, row, rows = offset, row + rows, 0
    if rows:
        yield _Part(name, row, rows, start)


def _parts_of_parquet(files: pyarrow.fs.FileSystem, name: str, most: int, row: int) -> Iterator[_Part]:
    with files.open_input_file(name) as stream:
        metadata = pyarrow.parquet.ParquetFile(stream).metadata
    for group in range(metadata.num_row_groups):
        all_rows = metadata.row_group(group).num_rows
        for start in range(0, all_rows, most):
            rows = min(most, all_rows - start)
            yield _Part(name, row, rows, start, group)
            row += rows


def _parts(files: pyarrow.fs.FileSystem, path: str, most: int) -> list[_Part]:
    parts: list[_Part] = []
    for name in _input_files(files, path):
        row = parts[-1].first_row + parts[-1].rows if parts else 0
        of_format = _parts_of_parquet if name.endswith(".parquet") else _parts_of_jsonl
        parts += of_format(files, name, most, row)
    return parts


def _read(files: pyarrow.fs.FileSystem, part: _Part) -> pyarrow.Table | list[dict[str, Any]]:
    with files.open_input_file(part.file) as stream:
        if part.file.endswith(".parquet"):
            group = pyarrow.parquet.ParquetFile(stream).read_row_group(part.row_group)
            return group.slice(part.start, part.rows)
        stream.seek(part.start)
        lines = (line for line in io.BufferedReader(stream, 1 << 20) if line.strip())
        try:
            return [dict(json.loads(line)) for line in itertools.islice(lines, part.rows)]
        except (TypeError, ValueError) as error:
            raise RequestError(f"input: expected a JSON object a line in {part.file}: {error}") from None


def _column(rows: pyarrow.Table | list[dict[str, Any]], name: str) -> list[Any]:
    """Values of a column, None where a row has none."""
    if not isinstance(rows, pyarrow.Table):
        return [row.get(name) for row in rows]
    if name not in rows.column_names:
        raise RequestError(f"column: expected one of {', '.join(rows.column_names)}, found {name!r}")
    return rows[name].to_pylist()


def _write(files: pyarrow.fs.FileSystem, name: str, rows: pyarrow.Table | list[dict[str, Any]],
           answers: dict[str, pyarrow.Array]) -> None:
    """Writes rows with columns of answers. The file appears when it is whole, however often it is written."""
    unfinished = f"{name}.{uuid.uuid4().hex}.tmp"
    with files.open_output_stream(unfinished) as stream:
        if isinstance(rows, pyarrow.Table):
            for column, values in answers.items():
                rows = with_column(rows, column, values)
            pyarrow.parquet.write_table(rows, stream)
        else:
            for row, answer in zip(rows, pyarrow.table(answers).to_pylist()):
                stream.write((json.dumps({**row, **answer}, ensure_ascii=False) + "\n").encode())
    files.move(unfinished, name)


@dataclasses.dataclass(frozen=True)
class _Job:
    """What every worker needs to know."""

    model: str
    output: str
    output_name: str  # "part-{:05}.jsonl"
    column: str
    into: str
    params: SamplingParams | None
    options: dict[str, Any]
    input_files: pyarrow.fs.FileSystem
    output_files: pyarrow.fs.FileSystem

    def file_of(self, number: int) -> str:
        return f"{self.output}/{self.output_name.format(number)}"


class _Worker:
    """Answers whole parts. A part is written under its own name: written twice it is the same file."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._llm = LLM(job.model, **job.options)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        numbers = [int(number) for number in batch["number"]]
        counts = [self._answer(number, _Part(**json.loads(part))) for number, part in zip(numbers, batch["part"])]
        return {"rows": [rows for rows, _ in counts], "failed": [failed for _, failed in counts]}

    def _answer(self, number: int, part: _Part) -> tuple[int, int]:
        job = self._job
        rows = _read(job.input_files, part)
        outputs = self._llm.generate(_column(rows, job.column), job.params, use_tqdm=False, errors="return")
        answers = [output.outputs[0] for output in outputs]
        texts = [answer.text if answer.error is None else None for answer in answers]
        errors = [None if answer.error is None else str(answer.error) for answer in answers]
        # With types of their own, so that all parts have the same: a column may be empty in some.
        _write(job.output_files, job.file_of(number), rows, {
            "row": pyarrow.array(range(part.first_row, part.first_row + part.rows), pyarrow.int64()),
            job.into: pyarrow.array(texts, pyarrow.string()),
            "finish_reason": pyarrow.array([answer.finish_reason for answer in answers], pyarrow.string()),
            "error": pyarrow.array(errors, pyarrow.string()),
        })
        failed = sum(error is not None for error in errors)
        return part.rows, failed


def _check_same_job(job: _Job, parts: list[_Part]) -> None:
    """Refuses to go on with the parts of another job."""
    description = json.dumps([job.model, job.column, job.into, repr(job.params), repr(sorted(job.options.items())),
                              [dataclasses.asdict(part) for part in parts]])
    fingerprint = hashlib.sha256(description.encode()).hexdigest().encode()
    name = f"{job.output}/_job"
    job.output_files.create_dir(job.output, recursive=True)
    if job.output_files.get_file_info(name).is_file:
        with job.output_files.open_input_stream(name) as stream:
            if stream.read() != fingerprint:
                raise RequestError(f"output: {job.output} has parts of another job (input, model or options); "
                                   "choose another folder")
        return
    with job.output_files.open_output_stream(name) as stream:
        stream.write(fingerprint)


def _resources(num_workers: int, resources: Mapping[str, float] | None) -> dict[str, Any]:
    """Resources of a worker, as Ray names them: all CPUs of a node, so that each node has one engine."""
    if resources is not None:
        custom = dict(resources)
        named = {"num_cpus": custom.pop("CPU", 0), "num_gpus": custom.pop("GPU", 0)}
        return {**named, "resources": custom} if custom else named
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if num_workers > len(nodes):
        raise RequestError(f"num_workers: expected at most the {len(nodes)} nodes of the cluster, found {num_workers}; "
                           'give resources={"CPU": N} to let engines share nodes')
    return {"num_cpus": min(node["CPU"] for node in nodes), "num_gpus": min(node.get("GPU", 0) for node in nodes)}


def batch(
    input: str,
    output: str,
    model: str,
    num_workers: int = 1,
    resources: Mapping[str, float] | None = None,
    *,
    sampling_params: SamplingParams | None = None,
    column: str = "prompt",
    into: str = "generated",
    rows_per_part: int = 256,
    input_files: pyarrow.fs.FileSystem | None = None,
    output_files: pyarrow.fs.FileSystem | None = None,
    progress: bool = True,
    **options: Any,
) -> dict[str, int]:
    """Answers the rows of a JSONL or Parquet file, or a folder of them, into a folder of parts in the same format.

    Paths may be URIs that pyarrow knows (``s3://``, ``gs://``, ``hdfs://``). Each row gets its number (``row``), the
    answer, ``finish_reason`` and ``error``. Workers may be killed at any time: each row is written once, and the same
    call goes on with the parts that are missing. A worker takes all CPUs of a node unless ``resources`` says otherwise.
    ``options`` are those of ``LLM``. Returns the rows of this run: ``rows``, ``failed`` and ``parts``.
    """
    read_from, source = _file_system(input, input_files)
    write_to, folder = _file_system(output, output_files)
    parts = _parts(read_from, source, rows_per_part)
    suffix = ".parquet" if parts and parts[0].file.endswith(".parquet") else ".jsonl"
    digits = max(5, len(str(len(parts))))
    options = {"max_num_seqs": rows_per_part, **options}
    job = _Job(model, folder, f"part-{{:0{digits}}}{suffix}", column, into, sampling_params, options, read_from, write_to)
    _check_same_job(job, parts)
    missing = [number for number in range(len(parts)) if not write_to.get_file_info(job.file_of(number)).is_file]
    done = {"rows": 0, "failed": 0, "parts": len(missing)}
    if not missing:
        return done
    items = [{"number": number, "part": json.dumps(dataclasses.asdict(parts[number]))} for number in missing]
    with_answers = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Worker, fn_constructor_args=(job,), batch_size=1, batch_format="numpy", compute=_pool(num_workers),
        **_resources(num_workers, resources))
    for counts in _shown(with_answers.iter_rows(), sum(parts[number].rows for number in missing), progress):
        done["rows"] += int(counts["rows"])
        done["failed"] += int(counts["failed"])
    for leftover in write_to.get_file_info(pyarrow.fs.FileSelector(folder)):
        if leftover.path.endswith(".tmp"):  # of killed workers
            write_to.delete_file(leftover.path)
    return done


def _pool(num_workers: int) -> Any:
    return ray.data.ActorPoolStrategy(size=num_workers, max_tasks_in_flight_per_actor=1)


def _shown(rows: Iterator[dict[str, Any]], total: int, progress: bool) -> Iterator[dict[str, Any]]:
    if not progress:
        yield from rows
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="Answered rows", dynamic_ncols=True) as bar:
        for row in rows:
            bar.update(int(row["rows"]))
            yield row
