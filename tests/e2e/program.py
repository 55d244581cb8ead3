"""The program under test, as all the tests here are called: `TEST.py KLOTSKI SOURCE_FOLDER [...]`."""
import functools
import json
import pathlib
import resource
import subprocess
import sys

KLOTSKI = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(sys.argv[2]).resolve()
TINY = SOURCE / "models" / "tiny-mixtral"
# A sanitizer needs terabytes of address space, keeps freed memory and slows everything down.
SANITIZED = any(name in KLOTSKI.read_bytes() for name in (b"__asan_init", b"__tsan_init"))
HANGS = 300  # seconds: even a busy machine with a sanitizer takes less, if anything ends at all


@functools.cache
def multiplied_precision(precision):
    """The precision of the numbers that quantised weights are multiplied as: a processor without instructions for
    bf16 products does not round them."""
    if precision == "f32":
        return precision
    machine = json.loads(subprocess.run([KLOTSKI, "doctor", "--json"], capture_output=True, check=True).stdout)
    return "bf16" if machine["kernels"]["bf16"] else "f32"


def processor_seconds():
    """What the programs run so far have used: unlike time on the wall, hardly longer on a busy machine."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def takes_at_most(seconds, attempt):
    """Whether one of a few attempts, each of which says how long it took, was quick enough: a busy
    machine makes some longer, not all."""
    return any(attempt() <= seconds for _ in range(5))
