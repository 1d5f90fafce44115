#!/usr/bin/env python3
"""Runs the mount tests: run.py [-j N] [-k PATTERN] [-l].

Every test is a function test_KIND__CONDITION__RESULT of a file test_*.py here. Each runs in a
process, a mount namespace and a time limit of its own. BUILD names the build folder, SLOW stretches
limits.
"""

import argparse
import concurrent.futures
import importlib
import os
import re
import signal
import subprocess
import sys
import time
import traceback

import harness

HERE = harness.HERE
LIMIT = 60
SKIPPED = 77
UNSHARE = ["unshare", "-m", "--propagation", "private"]
INSIDE = "NPUFS_TESTS_INSIDE"


def find_tests(pattern):
    """(module, function) of every test whose name the pattern (a regular expression) is in."""
    found = []
    for name in sorted(os.listdir(HERE)):
        if name.startswith("test_") and name.endswith(".py"):
            text = harness.read(os.path.join(HERE, name))
            tests = re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)
            found += [(name[:-3], t) for t in tests if re.search(pattern, f"{name[:-3]}.{t}")]
    return found


def run_here(module, function):
    """Run one test in this process; its exit status."""
    try:
        getattr(importlib.import_module(module), function)()
    except harness.Skip as e:
        print(f"SKIP {e}")
        return SKIPPED
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def limit_of(module, function):
    """Seconds a test may take: an attribute `limit`, or 60."""
    test = getattr(importlib.import_module(module), function)
    return getattr(test, "limit", LIMIT) * harness.SLOW


def is_left_out(module, function):
    """Under a sanitizer: an attribute `plain` says that it would find nothing more, only slower."""
    test = getattr(importlib.import_module(module), function)
    return harness.SANITIZED and getattr(test, "plain", False)


def run_child(test):
    """Run one test in a child: (test, status, output, seconds)."""
    start = time.monotonic()
    if is_left_out(*test):
        return test, SKIPPED, "SKIP many cases of what others do; run without sanitizers", 0
    command = [sys.executable, "-B", os.path.abspath(__file__), "--one", *test]
    if os.geteuid() == 0:
        command = UNSHARE + command
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = child.communicate(timeout=limit_of(*test))
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        status, output = 1, output + b"\nout of time"
    return test, status, output.decode("utf-8", "replace").strip(), time.monotonic() - start


def report(number, result):
    """Print the line of one test."""
    (_, function), status, output, seconds = result
    name = function.removeprefix("test_")
    if status == SKIPPED:
        print(f"ok {number} - {name} # SKIP {output.rpartition('SKIP ')[2]}")
    elif status == 0:
        print(f"ok {number} - {name} ({seconds:.1f} s)")
    else:
        print(f"not ok {number} - {name}")
        print("\n".join("#   " + line for line in output.splitlines()))
    sys.stdout.flush()


def run_all(tests, workers):
    """Run them all; the number of failed ones."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for number, result in enumerate(pool.map(run_child, tests), 1):
            report(number, result)
            kind = {0: "passed", SKIPPED: "skipped"}.get(result[1], "failed")
            counts[kind] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"]


def inside_namespace():
    """Go on in a mount namespace of our own."""
    if os.geteuid() == 0 and not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        command = UNSHARE + [sys.executable, "-B", os.path.abspath(__file__)] + sys.argv[1:]
        os.execvp(command[0], command)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="run the mount tests")
    parser.add_argument("-j", type=int, default=2, help="so many at once")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only names that this regular expression is in")
    parser.add_argument("-l", action="store_true", help="list the names")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.dont_write_bytecode = True
    sys.path.insert(0, HERE)
    if args.one:
        return run_here(*args.one)
    tests = find_tests(args.k)
    if args.l:
        print("\n".join(f"{m}.{t}" for m, t in tests))
        return 0
    inside_namespace()
    return 1 if run_all(tests, args.j) else 0


if __name__ == "__main__":
    sys.exit(main())
