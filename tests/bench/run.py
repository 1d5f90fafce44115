#!/usr/bin/env python3
"""Measures npufs: run.py [-k NAME] [-l] [--rounds N] [-n COUNT].

Prints a table: what, value, aim, and how it was found. No time is judged: the machine's other work
would be judged with it. What is compared is measured in turn within one run, A B A B, so that the
ratio holds on a noisy machine; where other work takes every core, trust the ratio of the minima
more than the median. The status is 0 unless something is broken.

Every part runs in a process, a mount namespace and a time limit of its own. BUILD names the build
folder, LLAMA2C a llama2.c program to compare with, SLOW stretches the limits. The spool of a
million jobs takes 4 GB of memory, on a tmpfs; --many 100000 is enough to see most of it.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True

import ground  # noqa: E402 (no bytecode into the tree)
import harness  # noqa: E402
import parts  # noqa: E402

UNSHARE = [*ground.TIED, "unshare", "-m", "--propagation", "private"]


def run_here(name, options):
    """Measure one part in this process; its exit status."""
    try:
        parts.PARTS[name][0](options)
    except harness.Skip as e:
        ground.remark(f"{name}: left out, {e}")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def wait_or_kill(child, limit):
    """The child's exit status; past the limit, or when we must end, all of it is killed."""
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return "out of time"
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def run_child(name):
    """Measure one part in a child; whether that went well."""
    command = UNSHARE + [sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]]
    with tempfile.TemporaryDirectory(prefix="npufs-bench-") as folder:
        child = subprocess.Popen(command + ["--one", name], stdin=subprocess.DEVNULL,
                                 start_new_session=True, env={**os.environ, "TMPDIR": folder})
        status = wait_or_kill(child, parts.PARTS[name][1] * harness.SLOW)
    if status != 0:
        ground.remark(f"{name}: BROKEN, status {status}")
    return status == 0


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="measure npufs")
    parser.add_argument("-k", default="", metavar="NAME", help="only parts with this in the name")
    parser.add_argument("-l", action="store_true", help="list the parts")
    parser.add_argument("--rounds", type=int, default=5, help="so many times A and B")
    parser.add_argument("-n", dest="count", type=int, default=10000,
                        help="finished jobs and waiting readers")
    parser.add_argument("--jobs", type=int, default=200, help="jobs of one measurement")
    parser.add_argument("--repeats", type=int, default=10, help="stories of one measurement")
    parser.add_argument("--looks", type=int, default=200, help="looks at health a round")
    parser.add_argument("--busy", type=int, default=500, help="stories queued for a round of looks")
    parser.add_argument("--few", type=int, default=1000, help="finished jobs of the small spool")
    parser.add_argument("--many", type=int, default=1000000, help="and of the large one")
    parser.add_argument("--cycles", type=int, default=100000, help="jobs that come and go")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    """Run the chosen parts one after the other."""
    options = arguments()
    if options.one:
        return run_here(options.one, options)
    names = [name for name in parts.PARTS if options.k in name]
    if not names:
        sys.exit(f"bench: no part has \"{options.k}\" in its name; see -l")
    if options.l:
        print("\n".join(f"{name:8} {parts.PARTS[name][0].__doc__}" for name in names))
        return 0
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("bench: left out, it needs root and /dev/fuse")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ground.row("what", "value", "aim", f"how ({options.rounds} rounds, {ground.CORES} cores)")
    return 0 if all([run_child(name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
