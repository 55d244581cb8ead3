#!/usr/bin/env python3
"""The Python package in a fresh virtual environment: `run_tests.py BUILD SOURCE ENVIRONMENT [pytest options]`.

BUILD is a build folder of position independent code, whose libraries the wheel takes. What the tests need comes from
PyPI into ENVIRONMENT, which later runs find there; where PyPI cannot be reached nothing is tested and a message says
so. The wheel is built and installed anew each time. With a BUILD for sanitizers the extension has them too, and their
runtime is loaded into the interpreter; leaks are not looked for, as the interpreter itself has some."""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

BUILD, SOURCE, ENVIRONMENT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
OPTIONS = sys.argv[4:]
PYTHON = ENVIRONMENT / "bin" / "python"
NEEDS = ["scikit-build-core>=0.10", "nanobind>=2.2", "pytest", "tqdm", "numpy", "pandas", "pyarrow"]
if sys.version_info >= (3, 12):
    NEEDS.append("cmake>=3.26")  # for the stable ABI
MAY_BE_MISSING = ["ray[data]"]  # comes later than others for a new Python; its tests are skipped then


def succeeds(command):
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    except subprocess.TimeoutExpired:
        print("SKIPPED: packages could not be installed within 500 s")
        return False
    if ended.returncode != 0:
        print("SKIPPED: packages cannot be installed here:", (ended.stderr or ended.stdout).strip()[-300:])
    return ended.returncode == 0


def install_needs():
    """Whether they are there in the end."""
    complete = ENVIRONMENT / "installed.txt"
    wanted = "\n".join(NEEDS + MAY_BE_MISSING)
    if complete.exists() and complete.read_text(encoding="utf-8") == wanted:
        return True
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    if not (succeeds([sys.executable, "-m", "venv", ENVIRONMENT]) and succeeds([*install, *NEEDS])):
        return False
    if succeeds([*install, *MAY_BE_MISSING]):
        complete.write_text(wanted, encoding="utf-8")
    return True


def settings_of_build():
    """BUILD's variables of CMake."""
    lines = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] not in "#/")
    return {name.split(":")[0]: value for name, value in pairs}


def install_wheel(built):
    wheels = ENVIRONMENT / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    settings = {"build-dir": ENVIRONMENT / f"build-{BUILD.name}", "build.targets": "_engine",
                "cmake.build-type": built["CMAKE_BUILD_TYPE"], "cmake.define.KLOTSKI_BUILT": BUILD,
                "cmake.define.CMAKE_CXX_COMPILER": built["CMAKE_CXX_COMPILER"]}
    subprocess.run([*pip, "wheel", SOURCE, "--no-deps", "--no-build-isolation", "--wheel-dir", wheels,
                    *(f"--config-settings={name}={value}" for name, value in settings.items())], check=True)
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", *wheels.glob("*.whl")], check=True)


def environment(built):
    """Variables for the tests; with sanitizers those that load their runtime before the interpreter."""
    variables = {**os.environ, "KLOTSKI_SANITIZE": built["KLOTSKI_SANITIZE"]}
    if not built["KLOTSKI_SANITIZE"]:
        return variables
    compiler = built["CMAKE_CXX_COMPILER"]
    names = [f"libclang_rt.asan-{platform.machine()}.so"] if "clang" in compiler else ["libasan.so", "libubsan.so"]
    # The C++ library as well: the runtime looks for its functions before the extension brings it.
    found = [subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
             for name in [*names, "libstdc++.so.6"]]
    return {**variables, "LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1"}


def main():
    if sys.version_info < (3, 11):
        print("SKIPPED: the package is for Python 3.11 and later")
        return 0
    if not install_needs():
        return 0
    begin = time.monotonic()
    built = settings_of_build()
    install_wheel(built)
    print(f"wheel built and installed in {time.monotonic() - begin:.1f} s", flush=True)
    tests = OPTIONS or [SOURCE / "tests" / "python"]
    return subprocess.run([PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", SOURCE, *tests],
                          env=environment(built), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
