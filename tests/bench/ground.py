"""What the measurements stand on: mounts of the floor and of npufs, parked readers, rows."""

import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "mount"))
import harness  # noqa: E402 (the path comes first)

SHARED = os.path.join(os.path.dirname(harness.TOP), "shared")
FLOOR = os.path.join(SHARED, "floor")
STORIES = os.path.join(SHARED, "data", "stories260K")
CORES = len(os.sched_getaffinity(0))
STEP_LIMIT = 60
TIED = ["setpriv", "--pdeathsig", "KILL"]  # ends with us, however we end


def row(what, value, aim="", note=""):
    """One line of the table."""
    print(f"{what:<58} {value:>11}  {aim:<10} {note}".rstrip(), flush=True)


def remark(text):
    """A line between the rows: what was left out, and why."""
    print(f"  ({text})", flush=True)


def rounds_of(count, *measures):
    """Call the measures in turn, `count` times round: for each one the list of its values."""
    values = [[] for _ in measures]
    for _ in range(count):
        for measure, list_of in zip(measures, values):
            list_of.append(measure())
    return values


def ratio(a, b):
    """The median of a/b round by round, and the ratio of the minima."""
    return statistics.median(x / y for x, y in zip(a, b)), min(a) / min(b)


def percentile(values, share):
    """The value that `share` of all values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# --- programs ------------------------------------------------------------------------------------


def compiled(source, target, flags=""):
    """A C program of the floor, compiled unless it is there and newer than its source."""
    path = os.path.join(harness.BUILD, "bench", target)
    if not os.path.exists(source):
        raise harness.Skip(f"{source} is not here")
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        harness.ok(f"{os.environ.get('CC', 'cc')} -O2 '{source}' -o '{path}' {flags}", STEP_LIMIT)
    return path


def jobseq(folder, jobs):
    """Microseconds a job of jobseq in the folder: the best of its own five rounds."""
    program = compiled(os.path.join(FLOOR, "jobseq.c"), "jobseq")
    text = harness.ok([program, folder, str(jobs)], STEP_LIMIT)
    return float(re.match(r"([\d.]+) us a job", text)[1])


def run_jobs(folder, writers, jobs, order="each", after="remove"):
    """Seconds that `writers` took for `jobs` jobs each, see tool_jobs.c."""
    command = [harness.tool("jobs"), folder, str(writers), str(jobs), order, after]
    return float(harness.ok(command, STEP_LIMIT))


# --- mounts --------------------------------------------------------------------------------------


class Floor:
    """The mount of the daemon that does nothing."""

    def __enter__(self):
        program = compiled(os.path.join(FLOOR, "floor.c"), "floor",
                           "$(pkg-config --cflags --libs fuse3)")
        self.path = tempfile.mkdtemp(prefix="npufs-floor-")
        self.proc = subprocess.Popen([*TIED, program, "-f", self.path],
                                     stdin=subprocess.DEVNULL)
        try:
            harness.until(lambda: os.stat(self.path).st_ino == 1, 10, "the floor is mounted")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        harness.run(["umount", "-l", self.path])
        try:
            self.proc.wait(5)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        os.rmdir(self.path)


def null(*options):
    """An npufs mount on the device that answers at once."""
    return harness.Mount(*options)


class Stories(harness.Mount):
    """An npufs mount on the software device, with stories260K."""

    def __init__(self, *options):
        if not os.path.exists(STORIES):
            raise harness.Skip(f"{STORIES} is not here")
        if not os.path.exists(self._admin()):
            raise harness.Skip("npufs-admin is not built")
        super().__init__("device=sim", *options)

    @staticmethod
    def _admin():
        return os.path.join(harness.BUILD, "npufs-admin")

    def start(self):
        """Make and sign the store, then start the daemon and wait until it is ready."""
        model, key = os.path.join(self.store, "models", "stories"), self.store + "-key"
        os.rmdir(os.path.join(self.store, "models"))
        os.rmdir(self.store)
        for words in (("store", "init", self.store), ("key", "generate", key),
                      ("store", "trust", self.store, key + ".pub.pem"),
                      ("artifact", "import", "llama2c", STORIES + "/stories260K.bin",
                       STORIES + "/tok512.bin", model),
                      ("artifact", "sign", model, key + ".pem")):
            harness.ok([self._admin(), *words], STEP_LIMIT)
        super().start()
        harness.until(lambda: os.path.exists(self.path + "/ready"), 20, "the model is ready")
        return self


class Filled(harness.Mount):
    """An npufs mount, device=null, whose spool holds so many finished jobs, on a tmpfs."""

    LIMITS = "max_files=100000000,max_bytes=1T,user_files=100000000,user_bytes=1T"

    def __init__(self, count, *options):
        super().__init__(self.LIMITS, *options)
        self.count, self.wait = count, False
        self.start_seconds = 0

    def start(self):
        """Fill the spool, and start the daemon; how long it takes to serve is noted."""
        harness.ok(["mount", "-t", "tmpfs", "-o", "size=90%,nr_inodes=0,mode=755", "spool", self.store])
        os.mkdir(os.path.join(self.store, "models"))
        harness.ok([harness.tool("fill_spool"), self.store, str(self.count)], STEP_LIMIT * 4)
        begin = time.monotonic()
        super().start()
        harness.until(self.serves, STEP_LIMIT, "the daemon serves")
        self.start_seconds = time.monotonic() - begin
        return self

    def clear(self):
        """Leave nothing behind, and no memory taken."""
        super().clear()
        harness.run(["umount", "-l", self.store])
        shutil.rmtree(self.dir, ignore_errors=True)


def on_tmpfs(*options):
    """An npufs mount, device=null, whose store is on a tmpfs: the disk costs nothing."""
    return Filled(0, *options)


def resident(mount, key="Anonymous"):
    """The daemon's resident bytes: Anonymous (what it allocated) or Rss (with its programs)."""
    text = harness.read(f"/proc/{mount.pid}/smaps_rollup")  # exact, which status is not
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024


def forget(mount):
    """Have the kernel let go of the mount's names and inodes that nobody uses."""
    harness.ok(["mount", "-i", "-o", "remount", mount.path])


# --- waiting readers -----------------------------------------------------------------------------


class Readers:
    """Waits on the results of requests that never run: reads that are parked, or polls.

    `opened` only opens them; start() begins to wait. Leaving the block ends them and checks that
    no wait had ended before.
    """

    def __init__(self, mount, count, kind):
        self.mount, self.count, self.kind = mount, count, kind

    def __enter__(self):
        command = [*TIED, harness.tool("readers"), self.mount.jobs, str(self.count), self.kind]
        self.proc = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
        self._step("opened")
        return self

    def _step(self, done):
        self.proc.stdin.write(b"\n")
        ready, _, _ = select.select([self.proc.stdout], [], [], STEP_LIMIT * harness.SLOW)
        got = self.proc.stdout.readline().decode().strip() if ready else "nothing"
        harness.equal(got, done, "tool_readers")

    def start(self):
        """Begin to wait; with reads return when the daemon holds them all."""
        self._step("waiting")
        if self.kind == "read":
            harness.until(lambda: self.mount.metric("npufs_parked_requests") >= self.count,
                          STEP_LIMIT, "all reads are parked")
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self._step("released")
                harness.equal(self.proc.wait(STEP_LIMIT), 0, "status of tool_readers")
        finally:
            self.proc.kill()
            self.proc.wait(STEP_LIMIT)
