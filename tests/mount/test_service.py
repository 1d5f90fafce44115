"""The service manager's side: sd_notify's words on a socket of the test's own, and the unit."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import (DELAY, LONG_REQUEST, SLOW, TOP, Mount, equal, need, need_root, ok, read, run,
                     took, until)
from test_life import Unstarted, background, daemons, unmounted

UNIT = os.path.join(TOP, "examples/host/npufs.service")
# Each gives the service a mount namespace of its own, in which nobody would see the mount.
HIDING = set("""ProtectSystem ProtectHome ProtectKernelTunables ProtectKernelModules ProtectProc
    ProtectKernelLogs ProtectControlGroups PrivateTmp PrivateDevices PrivateMounts PrivateUsers
    PrivateIPC ProcSubset ReadWritePaths ReadOnlyPaths InaccessiblePaths ExecPaths NoExecPaths
    BindPaths BindReadOnlyPaths TemporaryFileSystem RootDirectory RootImage MountFlags DynamicUser
    MountAPIVFS LoadCredential""".split())


class Manager(Mount):
    """A daemon with a $NOTIFY_SOCKET; `said` is every word that came, with its time."""

    def __init__(self, *options, watchdog=None, abstract=False, **kw):
        super().__init__(*options, **kw)
        self.name = f"@npufs-test-{os.getpid()}" if abstract else self.dir + "/notify"
        self.env["NOTIFY_SOCKET"] = self.name
        if watchdog:
            self.env["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        self.said = []
        self.at_ready = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.name[1:] if abstract else self.name)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self):
        while True:
            words = self.socket.recv(4096).decode()
            if "READY=1" in words.split("\n"):
                self.at_ready = os.path.ismount(self.path) and os.listdir(self.path)
            self.said += [(time.monotonic(), w) for w in words.split("\n")]

    def times(self, word):
        """When a word was said."""
        return [t for t, w in self.said if w == word]

    def hears(self, word, seconds=10):
        """Wait for a word."""
        until(lambda: self.times(word), seconds, f"{word} in {self.said}")


def test_notify__foreground__ready_once_when_the_mount_answers():
    """READY=1 is true when it is said; health follows."""
    with Manager(wait=False) as m:
        m.hears("READY=1")
        until(lambda: m.at_ready, 5, "the listing")
        assert "health" in m.at_ready and "jobs" in m.at_ready, m.at_ready
        m.hears("STATUS=ready")
        m.stop()
        equal(len(m.times("READY=1")), 1, "times said")
        equal(m.times("WATCHDOG=1"), [], "no watchdog was asked for")
        assert m.times("STOPPING=1"), m.said
        words = [w for _, w in m.said]
        assert words.index("READY=1") < words.index("STOPPING=1"), words
        assert any(w.startswith("EXTEND_TIMEOUT_USEC=") for w in words), words


def test_notify__abstract_socket__the_same():
    """@NAME is a socket without a file."""
    with Manager(abstract=True) as m:
        m.hears("READY=1")
        m.stop()
        assert m.times("STOPPING=1"), m.said


def test_notify__background__tells_its_process():
    """A daemon that left its parent says which process it is."""
    need_root()

    class Place(Manager, Unstarted):
        """Started by the test."""

    with Place() as m:
        ok(["env", *(f"{k}={v}" for k, v in m.env.items()), *background(m)])
        m.hears("READY=1")
        equal([f"MAINPID={pid}" for pid in daemons(m)],
              [w for _, w in m.said if w.startswith("MAINPID=")])
        unmounted(m)
        m.hears("STOPPING=1", 2)


def test_notify__mount_fails__never_ready():
    """A start that fails is not announced."""
    with Manager(wait=False) as m:
        m.hears("READY=1")
        m.said.clear()
        r = run(["env", *(f"{k}={v}" for k, v in m.env.items()), *m.command()])
        equal(r.returncode, 1, "status")
        equal(m.times("READY=1"), [])


def test_notify__socket_without_a_reader__daemon_serves():
    """Wrong, dead or full sockets are no reason to fail or to wait."""
    with Manager() as m:
        for name in ("", "x", "@", "/nowhere/notify", "/" + "n" * 200, "vsock:2:1"):
            with Mount() as other:
                other.stop()
                os.environ["NOTIFY_SOCKET"] = name
                try:
                    other.start()
                finally:
                    del os.environ["NOTIFY_SOCKET"]
                other.put("a.txt", "text")
                equal(other.out("a"), "text\n", name)


def test_watchdog__loop_runs__a_sign_every_half_of_the_time():
    """WATCHDOG=1 comes in time, also while the device hangs and while jobs drain."""
    with Manager("fault=Wait@1:hang", "drain=1500ms", watchdog=1) as m:
        m.put("a.json")
        m.runs("a")
        until(lambda: len(m.times("WATCHDOG=1")) >= 6, 10, "signs of life")
        gaps = [b - a for a, b in zip(m.times("WATCHDOG=1"), m.times("WATCHDOG=1")[1:])]
        assert max(gaps) < 1 * SLOW, gaps
        m.proc.send_signal(signal.SIGTERM)
        m.hears("STOPPING=1", 2)
        m.hears("STATUS=draining", 3)
        time.sleep(1)
        stopping = m.times("STOPPING=1")[0]
        assert [t for t in m.times("WATCHDOG=1") if t > stopping], m.said
        m.ends(status=1)


def test_watchdog__process_stopped__silence():
    """A process that does not run gives no sign."""
    with Manager(watchdog=0.4) as m:
        m.hears("WATCHDOG=1")
        os.kill(m.pid, signal.SIGSTOP)
        time.sleep(0.2)
        before = len(m.times("WATCHDOG=1"))
        time.sleep(1)
        equal(len(m.times("WATCHDOG=1")), before, "signs")
        os.kill(m.pid, signal.SIGCONT)
        until(lambda: len(m.times("WATCHDOG=1")) > before, 5, "a sign again")


def test_watchdog__only_the_loop_stuck__silence():
    """The thread that gives the signs runs; the loop, held by a debugger's stop, does not."""
    need_root()
    need("strace")
    with Manager(watchdog=0.4) as m:
        m.hears("WATCHDOG=1")
        # Each read of the loop's thread is held for 5 s on its way in.
        tracer = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", "-p", str(m.pid),
                                   "-e", "trace=read", "-e", "inject=read:delay_enter=5000000"],
                                  stderr=subprocess.PIPE)
        time.sleep(1.5)
        if tracer.poll() is not None:
            raise AssertionError(tracer.stderr.read())
        before = len(m.times("WATCHDOG=1"))
        time.sleep(2)
        equal(len(m.times("WATCHDOG=1")), before, "signs")
        tracer.terminate()
        tracer.wait()
        until(lambda: len(m.times("WATCHDOG=1")) > before, 10, "a sign again")


def test_watchdog__meant_for_another_process__none():
    """$WATCHDOG_PID decides."""
    os.environ["WATCHDOG_PID"] = "1"
    try:
        with Manager(watchdog=0.2) as m:
            m.hears("READY=1")
            time.sleep(0.6)
            equal(m.times("WATCHDOG=1"), [])
    finally:
        del os.environ["WATCHDOG_PID"]


def settings():
    """The unit's [Service] part."""
    lines = read(UNIT).split("[Service]")[1].split("[Install]")[0].splitlines()
    return [tuple(x.split("=", 1)) for x in lines if re.match(r"[A-Z]\w*=", x)]


def test_unit__its_settings__the_mount_is_seen_and_a_stuck_daemon_ends():
    """Notified, watched, started anew, and in the host's mount namespace (K09-11)."""
    unit = dict(settings())
    equal((unit["Type"], unit["Restart"]), ("notify", "on-failure"))
    assert int(unit["WatchdogSec"]) >= 10 and int(unit["TimeoutStopSec"]) >= 9, unit
    assert "-f" in unit["ExecStart"].split(), unit["ExecStart"]
    if shutil.which("systemd-analyze"):
        r = run(["systemd-analyze", "--man=no", "verify", UNIT])
        complaints = [x for x in r.stderr.splitlines() if "not executable" not in x]
        equal(complaints, [], "systemd-analyze")
    equal([k for k, _ in settings() if k in HIDING], [], "settings that hide the mount")


def test_unit__its_capabilities__are_enough():
    """The daemon works with no more than the unit leaves it."""
    need_root()
    need("setpriv")
    words = dict(settings())["CapabilityBoundingSet"].lower().replace("cap_", "").split()
    bound = "-all," + ",".join("+" + w for w in words)

    class Bound(Mount):
        """As the unit starts it."""

        def command(self):
            return ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set", bound,
                    *super().command()]

    with Bound("inotify") as m:
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n")
        until(lambda: m.metric("npufs_inotify_announced_total") == 1, 10, "announced")


def test_stop__readers_wait_and_files_are_open__answered_and_gone_in_time():
    """The unit's stop: waits are answered, the mount goes though it is in use (K09-06)."""
    need_root()
    with Manager(DELAY, "drain=200ms") as m:
        m.put("a.json", LONG_REQUEST)
        m.runs("a")
        script = "exec 7<metrics; cd jobs; cat a.out; sleep 2; cat <&7; ls"
        shell = subprocess.Popen(["sh", "-c", script], cwd=m.path, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: m.metric("npufs_parked_requests") == 1, 10, "the reader waits")
        with took(5, "the stop"):
            m.stop()
        equal(os.path.ismount(m.path), False, "mounted")
        told = shell.communicate(timeout=5 * SLOW)[1]
        assert "shutdown" in told, told
        assert told.count("not connected") >= 2, told


def test_watchdog__manager_ends_a_stuck_daemon__next_start_serves():
    """What systemd does: silence, SIGABRT, a new start on the dead mount (K09-11, K09-01)."""
    need_root()
    with Manager(watchdog=0.4) as m:
        m.hears("WATCHDOG=1")
        os.kill(m.pid, signal.SIGSTOP)
        time.sleep(0.2)
        before = len(m.times("WATCHDOG=1"))
        time.sleep(0.6)
        equal(len(m.times("WATCHDOG=1")), before, "signs")
        os.kill(m.pid, signal.SIGABRT)
        os.kill(m.pid, signal.SIGCONT)
        m.ends(-signal.SIGABRT)
        m.said.clear()
        m.wait = False
        m.start()
        m.hears("READY=1")
        equal([x.split()[1] for x in read("/proc/mounts").splitlines()].count(m.path), 1, "mounts")
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n")
