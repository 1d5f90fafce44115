"""A mounted npufs for tests, and what tests do with it: run as another user, wait for jobs.

A mark such as (K05-01) in a test names the case, of a collection of faults, that it was made from.
"""

import ctypes
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(TOP, os.environ.get("BUILD", "build"))
SLOW = float(os.environ.get("SLOW", "1"))
SANITIZED = "/san-" in os.environ.get("BUILD", "")  # memory and time say little then
U1, U2 = 1001, 1002
REQUEST = '{"prompt":"x"}'
LONG_REQUEST = json.dumps({"prompt": "s" * 300})  # with DELAY, 30 s on the device
DELAY = "sim_delay=100ms"
# What is freed is overwritten at once: libfuse reads it for us where no sanitizer looks.
POISON = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165"
ENDED = ("done", "failed", "cancelled", "expired")
PR_SET_PDEATHSIG = 1

for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # of the make that runs the tests, which use it too
    os.environ.pop(name, None)


class Skip(Exception):
    """The test cannot be done here; the text says why."""


def need(*programs):
    """Skip unless all these programs are installed."""
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")


def need_root():
    """Skip unless other users can be played."""
    if os.geteuid() != 0:
        raise Skip("needs root")


def tool(name):
    """Path of a small C program of the tests."""
    path = os.path.join(BUILD, "tests", "tool_" + name)
    if not os.path.exists(path):
        raise Skip(f"tool_{name} is not built")
    return path


def preloadable(source, to):
    """Compile a small library of the tests, to be preloaded into a daemon; its path in folder `to`."""
    if SANITIZED:
        raise Skip("nothing is preloaded into a daemon under a sanitizer")
    need("cc")
    library = os.path.join(to, source.removesuffix(".c") + ".so")
    ok(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, os.path.join(HERE, source)])
    return library


def equal(got, want, what=""):
    """Fail with both values unless they are the same."""
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def errno_of(function, *args, **kw):
    """The errno with which a call fails; 0 when it does not."""
    try:
        function(*args, **kw)
    except OSError as e:
        return e.errno
    return 0


def until(condition, seconds=10, what="condition"):
    """Wait until condition() is true and return what it gave."""
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        got = condition()
        if got:
            return got
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds * SLOW:g} s")


class took:
    """`with took(1, "ls"):` fails when the block takes longer (times SLOW)."""

    def __init__(self, seconds, what=""):
        self.limit, self.what = seconds * SLOW, what

    def __enter__(self):
        self.start = time.monotonic()
        return self

    def __exit__(self, kind, *_):
        self.seconds = time.monotonic() - self.start
        if kind is None:
            assert self.seconds < self.limit, f"{self.what}: took {self.seconds:.2f} s"


def at_once(path, limit=0.1):
    """The file's text. Most of several readings must be as quick: a busy machine slows one or two,
    a daemon that waits for something slows all."""
    seconds = []
    for _ in range(9):
        start = time.monotonic()
        text = read(path)
        seconds.append(time.monotonic() - start)
    assert sorted(seconds)[4] < limit * SLOW, f"{path}: took {seconds}"
    return text


def run(command, seconds=20, **kw):
    """Run a command (a string goes to sh); its output is captured, its status not judged."""
    kw.setdefault("shell", isinstance(command, str))
    kw.setdefault("text", True)
    return subprocess.run(command, capture_output=True, timeout=seconds * SLOW, check=False,
                          env={**os.environ, "LC_ALL": "C"}, **kw)


def ok(command, seconds=20, **kw):
    """Run a command that must succeed; its standard output."""
    r = run(command, seconds, **kw)
    assert r.returncode == 0, f"{command}: status {r.returncode}: {r.stderr}"
    return r.stdout


def become(uid, groups=()):
    """Turn this process into that user's."""
    os.setgroups(list(groups))
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _child(uid, groups, pipe, function, args):
    try:
        become(uid, groups)
        answer = (True, function(*args))
    except BaseException as e:  # all of it belongs to the parent
        answer = (False, e)
    with os.fdopen(pipe, "wb") as out:
        pickle.dump(answer, out)


def as_user(uid, function, *args, groups=()):
    """Call function(*args) as that user in a child: its result, or its exception."""
    need_root()
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            _child(uid, groups, w, function, args)
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as answer:
        good, got = pickle.load(answer)
    os.waitpid(pid, 0)
    if not good:
        raise got
    return got


def sh_as(uid, command, seconds=20):
    """A shell line as that user."""
    need_root()
    return run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "sh", "-c",
                command], seconds)


def open_fuse_device(m):
    """In this mount namespace everybody may open /dev/fuse."""
    need_root()
    node = m.dir + "/fuse"
    os.mknod(node, stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
    os.chmod(node, 0o666)
    ok(["mount", "--bind", node, "/dev/fuse"])


def read(path):
    """A whole file as text."""
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text, mode="w"):
    """Create or overwrite a file; errors of write and of close are raised."""
    data = text.encode() if isinstance(text, str) else text
    with open(path, mode + "b", buffering=0) as f:
        assert f.write(data) == len(data)


def trail_lines(m, folder):
    """The whole lines of an audit trail, all files: the daemon may be writing another."""
    path = os.path.join(m.store, folder)
    names = sorted(n for n in os.listdir(path) if n.endswith(".jsonl"))
    return [x for n in names for x in read(os.path.join(path, n)).split("\n")[:-1]]


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _fields(text):
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


class Mount:
    """A daemon with a store, a mountpoint and a log of its own, in the foreground.

    Leaving the `with` block stops it; a status other than 0 (as after a sanitizer's report) fails
    the test.
    """

    def __init__(self, *options, uid=None, wait=True, program=None, preload=None):
        self.dir = tempfile.mkdtemp(prefix="npufs-test-")
        os.chmod(self.dir, 0o755)
        self.path = os.path.join(self.dir, "mnt")
        self.store = os.path.join(self.dir, "store")
        self.log = os.path.join(self.dir, "log")
        self.jobs = os.path.join(self.path, "jobs")
        self.options, self.uid, self.wait = options, uid, wait
        self.env = {"GLIBC_TUNABLES": POISON}
        if preload:
            self.env["LD_PRELOAD"] = preloadable(preload, self.dir)
        self.program = program or os.path.join(BUILD, "npufs")
        self.proc = None
        for folder in (self.path, self.store, os.path.join(self.store, "models")):
            os.mkdir(folder, 0o755)
            if uid is not None:
                os.chown(folder, uid, uid)

    def command(self):
        """The command line."""
        options = ",".join(("device=null", "drain=200ms") + self.options)
        return [self.program, self.store, self.path, "-f", "-o", options]

    def _prepare(self):
        if self.uid is not None:
            become(self.uid)
        _die_with_parent()

    def start(self):
        """Start the daemon and wait until it serves."""
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=log, env={**os.environ, **self.env},
                                         preexec_fn=self._prepare)
        if self.wait:
            until(self.serves, 10, "the daemon serves")
        return self

    def serves(self):
        """Is health there and past starting? (Of a private mount only its user knows.)"""
        assert self.proc.poll() is None, f"the daemon ended: {read(self.log)}"
        if self.uid is not None:
            return as_user(self.uid, self._ready)
        return self._ready()

    def _ready(self):
        try:
            return not read(self.path + "/health").startswith("starting")
        except FileNotFoundError:
            return False

    @property
    def pid(self):
        """The daemon's process."""
        return self.proc.pid

    def stop(self, status=0):
        """SIGTERM, and judge how it ends."""
        self.proc.send_signal(signal.SIGTERM)
        self.ends(status)

    def ends(self, status=0):
        """Wait for the daemon's end and judge its status."""
        try:
            got = self.proc.wait(15 * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError("the daemon does not stop") from None
        equal(got, status, f"the daemon's exit status; its log: {read(self.log)[-4000:]}")

    def kill(self):
        """The daemon ends at once; its mount is cleared."""
        self.proc.kill()
        self.proc.wait()
        ok(["umount", "-l", self.path])

    def clear(self):
        """Leave nothing behind."""
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        while run(["umount", "-l", self.path]).returncode == 0:
            pass
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.clear()
            raise

    def __exit__(self, kind, *_):
        try:
            self._leave(kind is None)
        finally:
            self.clear()

    def _leave(self, good):
        """Stop what still runs; after a failure tell how the daemon was."""
        try:
            if self.proc.poll() is None:
                self.stop()
            elif not good:
                print(f"the daemon had ended with {self.proc.returncode}: {read(self.log)[-4000:]}")
        except AssertionError as e:
            if good:
                raise
            print(e)

    # --- jobs -----------------------------------------------------------------------------------

    def job(self, name):
        """Path of a file in jobs/."""
        return os.path.join(self.jobs, name)

    def put(self, name, text=REQUEST):
        """Write a request."""
        write(self.job(name), text)

    def send(self, name, text):
        """Write a request whatever is said about it; the errno of create, write or close."""
        return errno_of(self.put, name, text)

    def status(self, stem):
        """STEM.status as a dictionary."""
        return _fields(read(self.job(stem + ".status")))

    def state(self, stem):
        """The job's state."""
        return self.status(stem)["state"]

    def done(self, stem, seconds=20):
        """Wait for the job's end; its status."""
        until(lambda: self.state(stem) in ENDED, seconds, f"end of {stem}")
        return self.status(stem)

    def runs(self, stem):
        """Wait until the job is on the device."""
        until(lambda: self.state(stem) == "running", 10, f"{stem} runs")

    def out(self, stem):
        """STEM.out, waiting for it."""
        return read(self.job(stem + ".out"))

    def err(self, stem):
        """STEM.err as a dictionary."""
        return _fields(read(self.job(stem + ".err")))

    def list(self, folder=""):
        """What jobs/ lists."""
        return sorted(os.listdir(os.path.join(self.jobs, folder)))

    # --- figures --------------------------------------------------------------------------------

    def metric(self, name):
        """A figure of metrics; of one with labels the sum."""
        lines = [x for x in read(self.path + "/metrics").splitlines() if not x.startswith("#")]
        values = [float(x.rsplit(" ", 1)[1]) for x in lines
                  if x.split("{")[0].split(" ")[0] == name]
        assert values, f"no metric {name}"
        return sum(values)

    def started(self):
        """Jobs that began to run."""
        return self.metric("npufs_jobs_started_total")

    def rss(self, field="VmRSS"):
        """The daemon's resident kilobytes; with "VmHWM" the most there ever were."""
        return int(_fields(read(f"/proc/{self.pid}/status").replace("\t", " "))[field].split()[0])
