#!/usr/bin/env python3
"""Checks the includes under src/ against the table of levels in src/README.md.

Prints each violation as file:line and exits with 1 if there is any:
  - an include of another folder of the same or of a higher level,
  - a folder under src/ that the table does not have,
  - a CUDA header in a file that is neither *.cu nor *_cuda.h,
  - a type of one name that two files define in one namespace: the linker would keep either's functions.
"""

import argparse
import pathlib
import re
import sys

TABLE_ROW = re.compile(r"^\|\s*(\d+)\s*\|([^|]*)\|")
FOLDER = re.compile(r"`([a-z0-9_]+)/`")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"^(cuda|cublas|cufft|curand|cusparse|cusolver|cutlass|cub/|nccl|nv|mma\.h)")
NAMESPACE = re.compile(r"^namespace ?([\w:]*) ?\{|^\}  // namespace")
TYPE = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)(?: final)?(?: ?:[^:;].*)?\s*\{")
SOURCES = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".inc"}


def read_levels(readme):
    """The level of each folder, or an empty table where the file is not there."""
    levels = {}
    if not readme.is_file():
        return levels
    for line in readme.read_text(encoding="utf-8").splitlines():
        row = TABLE_ROW.match(line)
        if row:
            for folder in FOLDER.findall(row.group(2)):
                levels[folder] = int(row.group(1))
    return levels


def check_include(folder, name, levels):
    """What is wrong with a quoted include in a file of this folder, or None."""
    target = name.split("/")[0]
    if ".." in name.split("/"):
        return f'"{name}": includes begin at src/, without ..'
    if target == folder or target not in levels:
        return None
    if levels[target] >= levels[folder]:
        return (
            f'"{name}": {folder}/ (level {levels[folder]}) may not include '
            f"{target}/ (level {levels[target]})"
        )
    return None


def check_file(path, lines, folder, levels):
    """The violations of one file, as (line number, text)."""
    may_use_cuda = path.suffix == ".cu" or path.name.endswith("_cuda.h")
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if not include:
            continue
        name = include.group(2)
        if CUDA_HEADER.match(name) and not may_use_cuda:
            yield number, f"{name}: CUDA headers belong in *.cu and *_cuda.h"
        elif include.group(1) == '"':
            wrong = check_include(folder, name, levels)
            if wrong:
                yield number, wrong


def types_of(lines):
    """The types that a file's lines define outside of unnamed namespaces, as (line number, whole name)."""
    namespaces = []
    for number, line in enumerate(lines, 1):
        namespace = NAMESPACE.match(line)
        if namespace and line.startswith("namespace"):
            namespaces.append(namespace.group(1))
        elif namespace and namespaces:
            namespaces.pop()
        defined = TYPE.match(line)
        if defined and "" not in namespaces:
            yield number, "::".join([*namespaces, defined.group(1)])


def check_tree(root):
    """The violations of a source tree, as lines to print."""
    source = root / "src"
    readme = source / "README.md"
    levels = read_levels(readme)
    if not levels:
        return [f"{readme.relative_to(root)}:1: expected a table of levels, found none"]
    violations = []
    places = {}  # where each type was first defined
    for folder in sorted(path for path in source.iterdir() if path.is_dir()):
        if folder.name not in levels:
            violations.append(f"{folder.relative_to(root)}:1: not in the table of src/README.md")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                place = path.relative_to(root)
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                for number, text in check_file(path, lines, folder.name, levels):
                    violations.append(f"{place}:{number}: {text}")
                for number, name in types_of(lines):
                    first = places.setdefault(name, place)
                    if first != place:
                        violations.append(f"{place}:{number}: {name}: {first} defines a type of this name")
    return violations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=here.parent)
    violations = check_tree(parser.parse_args().root.resolve())
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
