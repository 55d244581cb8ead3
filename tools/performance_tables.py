#!/usr/bin/env python3
"""Makes the tables of docs/performance.md from the results files in bench/results.

    tools/performance_tables.py            writes the tables anew
    tools/performance_tables.py --check    fails where a table differs from its files, or where a
                                           results file lacks a field of its evidence

The page keeps its prose. A table stands between two markers; the first one is a comment that says how the
table is made:

    <!-- table
    a = 2026-11-16-gpu-ablation
    | strategy | tokens/s |
    | simple | {a.settings[0].tokens_per_second:.2f} |
    for s in a.settings[1:]: | {s.setting} | {s.tokens_per_second:.2f} |
    -->
    ...
    <!-- end of table -->

The first lines give results files a name. The first row is the heading; every other row is a Python format
string over these names, once or for each element of a list. Below the table stands a line of evidence: for
each file its commit, its repetitions and their spread.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Fields of a results file that tell where its figures come from. "unknown" stands for what nobody noted.
EVIDENCE = ("commit", "command", "machine", "repetitions", "spread")

TABLE = re.compile(r"<!-- table\n(?P<recipe>.*?)\n-->\n(?P<rows>.*?)<!-- end of table -->\n", re.DOTALL)


class PageError(Exception):
    """A table cannot be made, or a results file cannot be used."""


class Fields(dict):
    """An object of JSON whose keys are attributes as well."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(f"no field {name}")
        return self[name]


def median(rates):
    """The rate that `klotski bench` reports of several runs: of an even number the slower one in the middle."""
    return sorted(rates, reverse=True)[len(rates) // 2]


def each(rates, form=".1f"):
    """The rates with commas between, the slowest first."""
    return ", ".join(f"{rate:{form}}" for rate in sorted(rates))


def bold(rate, rates):
    """The rate, in bold where it is the highest."""
    return f"**{rate:,.1f}**" if rate == max(rates) else f"{rate:,.1f}"


def change(before, after):
    """By how many percent the rates of runs, added up, differ from those of runs before."""
    rates = [sum(run.tokens_per_second for run in runs) for runs in (before, after)]
    return f"{100 * (rates[1] / rates[0] - 1):+.1f} %"


def only(elements, **wanted):
    """The element of a list that has these fields."""
    found = [one for one in elements if all(one.get(key) == value for key, value in wanted.items())]
    if len(found) != 1:
        raise PageError(f"{len(found)} elements with {wanted}, expected 1")
    return found[0]


FUNCTIONS = {function.__name__: function for function in (median, each, bold, change, only, abs, len, sorted, zip)}


def evaluate(expression, names):
    """The value of an expression of the page, which belongs to this repository as this script does."""
    try:
        return eval(expression, {"__builtins__": {}, **FUNCTIONS, **names})  # pylint: disable=eval-used
    except PageError:
        raise
    except Exception as error:
        raise PageError(f"{expression}: {error}") from error


def rows_of(line, names):
    """The rows that a line of a recipe makes."""
    loop = re.fullmatch(r"for ([\w, ]+) in (.+?): (\|.*)", line)
    template = loop[3] if loop else line
    if not template.startswith("|") or "'''" in template:
        raise PageError(f"expected a row, found {line}")
    row = f"f'''{template}'''"
    if not loop:
        return [evaluate(row, names)]
    return evaluate(f"[{row} for {loop[1]} in {loop[2]}]", names)


def heading_of(line):
    if not line.startswith("|"):
        raise PageError(f"expected a heading, found {line}")
    return [line, "|" + "---|" * (line.count("|") - 1)]


def repetitions_in_words(fields):
    repetitions, spread = fields["repetitions"], fields["spread"]
    if repetitions == "unknown":
        return "repetitions and spread unknown" if spread == "unknown" else f"repetitions unknown, spread {spread}"
    if repetitions == 1:
        return "1 run"
    runs = f"{repetitions} runs" if isinstance(repetitions, int) else repetitions
    return f"{runs}, spread {spread if isinstance(spread, str) else f'{spread:.1f} %'}"


def evidence_line(files):
    said = [f"[{name}](../bench/results/{name}.json) as of {fields['commit']}, {repetitions_in_words(fields)}"
            for name, fields in files.items()]
    return f"Evidence: {'; '.join(said)}."


def table_of(recipe, results):
    """The rows of a table, and its evidence."""
    names, files, rows = {}, {}, []
    for line in recipe.splitlines():
        named = re.fullmatch(r"(\w+) = (\S+)", line)
        if named and not rows:
            if named[2] not in results:
                raise PageError(f"no results file {named[2]}")
            names[named[1]] = files[named[2]] = results[named[2]]
        elif not files:
            raise PageError(f"a table names no results file before {line}")
        elif not rows:
            rows = heading_of(line)
        else:
            rows += rows_of(line, names)
    columns = rows[0].count("|")
    for row in rows:
        if row.count("|") != columns:
            raise PageError(f"expected {columns - 1} columns, found {row}")
    return "".join(f"{line}\n" for line in [*rows, "", evidence_line(files)])


def made(page, results):
    """The page with its tables made from the results files."""
    def with_rows(table):
        return f"<!-- table\n{table['recipe']}\n-->\n{table_of(table['recipe'], results)}<!-- end of table -->\n"

    outside = TABLE.sub("", page)
    if "<!-- table" in outside or "<!-- end of table" in outside:
        raise PageError("a marker of a table lacks its other one")
    row = re.search(r"^\|.*", outside, re.MULTILINE)
    if row:
        raise PageError(f"a row outside the tables' markers: {row[0]}")
    return TABLE.sub(with_rows, page)


def read_results(folder):
    results = {}
    for path in sorted(folder.glob("*.json")):
        fields = json.loads(path.read_text(), object_hook=Fields)
        missing = [field for field in EVIDENCE if fields.get(field) in (None, "")]
        if missing:
            raise PageError(f"{path.name}: no {', '.join(missing)}")
        results[path.stem] = fields
    return results


def main(arguments):
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    page = ROOT / "docs" / "performance.md"
    found = page.read_text()
    try:
        expected = made(found, read_results(ROOT / "bench" / "results"))
    except PageError as error:
        print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
        return 1
    if not check:
        page.write_text(expected)
        return 0
    if found == expected:
        return 0
    lines = enumerate(zip(found.splitlines(), expected.splitlines()), 1)
    number, here, there = next((number, *pair) for number, pair in lines if pair[0] != pair[1])
    print(f"docs/performance.md:{number}: found\n{here}\nthe results files give\n{there}", file=sys.stderr)
    print("tools/performance_tables.py writes the tables anew", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
