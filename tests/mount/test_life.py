"""From start to end: dead mounts, second starts, options of others, signals, unmounting (K09)."""

import errno
import os
import signal
import subprocess
import threading
import time

from harness import (BUILD, DELAY, LONG_REQUEST, SLOW, Mount, equal, errno_of, need, need_root, ok,
                     read, run, took, until, write)

IGNORED = ("nofail", "_netdev", "noauto", "user", "users", "x-systemd.automount",
           "x-systemd.requires=net.target", "defaults", "nonempty", "auto,exec", "comment=x",
           "rw,nosuid,nodev,noatime")


def mounts(m):
    """How many mounts are at the mountpoint."""
    return [x.split()[1] for x in read("/proc/mounts").splitlines()].count(m.path)


def name_of(pid):
    """As lists of processes show it."""
    return read(f"/proc/{pid}/comm").strip()


def daemons(m, name="npufs"):
    """Processes that serve this store, or keep its mount."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            ours = words[0].endswith(b"npufs") and m.store.encode() in words
            same = ours and name_of(pid) == name
        except OSError:
            continue
        if same:
            found.append(int(pid))
    return found


def background(m):
    """The command line of a daemon that leaves the terminal."""
    return [w for w in m.command() if w != "-f"]


def unmounted(m):
    """umount ends the daemon and the mount."""
    ok(["umount", m.path])
    until(lambda: not daemons(m), 10, "the daemon's end")
    equal(mounts(m), 0, "mounts")


class Unstarted(Mount):
    """A place for a mount; tests start the daemon their own way."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in daemons(self):
            os.kill(pid, signal.SIGKILL)
        self.clear()


def test_crash__restart__dead_mount_cleared_and_one_entry():
    """The next start takes a dead mount of its own kind away (K09-01)."""
    need_root()
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        cat = subprocess.Popen(["cat", m.job("a.out")], stderr=subprocess.PIPE, text=True)
        until(lambda: m.metric("npufs_parked_requests") == 1, 10, "the reader waits")
        m.proc.kill()
        m.proc.wait()
        assert "abort" in cat.communicate(timeout=5 * SLOW)[1]
        equal(errno_of(os.listdir, m.path), errno.ENOTCONN, "after the crash")
        m.wait = False
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "the new daemon serves")
        equal(mounts(m), 1, "mounts")
        m.put("b.txt", "text")
        equal(m.out("b"), "text\n", "a new job")


def crash(m):
    """kill -9; a dead mount stays."""
    m.proc.kill()
    m.proc.wait()
    equal(errno_of(os.listdir, m.path), errno.ENOTCONN, "after the crash")


def test_crash__mountpoint_named_by_a_link_or_with_slashes__cleared_all_the_same():
    """However it is called, it is the same place (K09-01)."""
    need_root()
    with Mount(wait=False) as m:
        until(m.serves, 10, "the first serves")
        real, names = m.path, (m.path + "//", m.dir + "/link", m.dir + "/link/", m.dir + "/./mnt")
        os.symlink("mnt", m.dir + "/link")
        for name in names:
            crash(m)
            m.path = name
            m.start()
            m.path = real
            until(lambda: os.path.ismount(m.path) and m.serves(), 10, name)
            equal(mounts(m), 1, name)
        m.path = m.dir + "/link"
        equal(run(m.command()).returncode, 1, "a live one, by its link")
        m.path = real
        equal(mounts(m), 1, "mounts at last")


def test_crash__dead_mounts_on_each_other__all_cleared():
    """Several, as a service manager in a loop may leave them (K09-01)."""
    need_root()
    with Mount() as m:
        crash(m)
        ok(["mount", "-t", "tmpfs", "none", m.path])
        m.start()
        crash(m)
        equal(mounts(m), 3, "dead, another, dead")
        m.wait = False
        m.start()
        until(lambda: errno_of(os.stat, m.path + "/health") == 0, 10, "serves")
        kinds = [x.split()[2] for x in read("/proc/mounts").splitlines() if x.split()[1] == m.path]
        equal(kinds, ["fuse.npufs", "tmpfs", "fuse.npufs"], "only the topmost was in the way")
        m.stop()
        ok(["umount", m.path])
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "serves")
        equal(mounts(m), 1, "mounts")


def test_start__dead_mount_of_another_kind__not_touched():
    """Only what is ours is cleared (K09-01)."""
    need_root()
    with Unstarted() as m:
        fd = os.open("/dev/fuse", os.O_RDWR)
        ok(f"mount -i -t fuse.other -o fd={fd},rootmode=40000,user_id=0,group_id=0 other {m.path}",
           pass_fds=(fd,))
        os.close(fd)
        equal(errno_of(os.listdir, m.path), errno.ENOTCONN, "dead")
        r = run(m.command())
        assert r.returncode == 1 and "not connected" in r.stderr, r
        equal(mounts(m), 1, "mounts")


def test_second_start__first_one_hangs__refused_in_time():
    """One that does not answer is not dead (K09-09, K09-11)."""
    need_root()
    with Mount() as m:
        os.kill(m.pid, signal.SIGSTOP)
        try:
            with took(5, "the refusal"):
                r = run(m.command())
            assert r.returncode == 1 and "does not answer" in r.stderr, r
        finally:
            os.kill(m.pid, signal.SIGCONT)
        equal((mounts(m), daemons(m)), (1, [m.pid]), "mounts and daemons")


def test_options__of_mount_and_systemd__accepted_and_ignored():
    """fstab's words are not for the daemon (K09-03)."""
    for option in IGNORED:
        with Mount(option) as m:
            assert os.path.ismount(m.path), option


def test_options__misspelt__refused_by_name():
    """A real slip is refused with the option's name and the nearest (K09-03)."""
    with Unstarted("sim_dealy=1s") as m:
        r = run(m.command())
        equal(r.returncode, 2, "status")
        assert "sim_dealy" in r.stderr and "sim_delay" in r.stderr, r.stderr
    for bad in ("queue=0", "queue=x", "jobs_umask=9", "max_bytes=1", "private=1", "log=loud"):
        with Unstarted(bad) as m:
            r = run(m.command())
            equal(r.returncode, 2, bad)
            assert bad.split("=")[0] in r.stderr, r.stderr


def test_arguments__wrong__said_and_status_2():
    """The command line explains itself."""
    npufs = os.path.join(BUILD, "npufs")
    for words in ([], ["one"], ["a", "b", "c"], ["--what", "a", "b"]):
        r = run([npufs, *words])
        equal(r.returncode, 2, str(words))
        assert "--help" in r.stderr, r.stderr
    assert "sim_delay" in ok([npufs, "--help"])
    with Unstarted() as m:
        os.rmdir(m.path)
        equal(run(m.command()).returncode, 1, "no mountpoint")
        write(m.path, "a file")
        equal(run(m.command()).returncode, 1, "a file as mountpoint")


def install(m):
    """In this mount namespace the program is where mount(8) looks for it."""
    ok(["mount", "-t", "tmpfs", "none", "/usr/local/sbin"])
    os.symlink(m.program, "/usr/local/sbin/npufs")


def test_mount_program__type_fuse_npufs__mounted():
    """mount(8) starts it with its own words (K09-03)."""
    need_root()
    need("mount.fuse")
    with Unstarted() as m:
        install(m)
        ok(["mount", "-t", "fuse.npufs", "-o", "device=null,nofail,_netdev", m.store, m.path])
        line = [x for x in read("/proc/mounts").splitlines() if m.path in x][0]
        equal(line.split()[2], "fuse.npufs", "type")
        until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready")
        unmounted(m)


def test_background__terminal_closes__daemon_stays():
    """It has left the terminal's session before its parent ends (K09-05)."""
    need_root()
    need("script")
    with Unstarted() as m:
        ok(["script", "-qec", " ".join(background(m)), "/dev/null"])
        time.sleep(0.2)
        until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready")
        pid, = daemons(m)
        equal(os.getsid(pid) == os.getsid(0), False, "a session of its own")
        unmounted(m)


def test_background__output_into_a_pipe__pipe_closes():
    """`npufs ... | cat` and ssh return: nothing of the caller's stays open."""
    need_root()
    with Unstarted() as m:
        with took(5, "until the pipe closes"):
            r = run(background(m), 30)
        equal((r.returncode, r.stdout, r.stderr), (0, "", ""), "start")
        unmounted(m)


def test_unmount__file_open__busy_and_goes_on():
    """A plain umount is refused; a stop ends all without a hang (K09-06)."""
    need_root()
    with Mount() as m:
        fd = os.open(m.path + "/metrics", os.O_RDONLY)
        r = run(["umount", m.path])
        assert r.returncode != 0 and "busy" in r.stderr, r
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "a job after it")
        equal(read(m.path + "/health").split("\n")[0], "ready", "after it")
        with took(5, "the stop"):
            m.stop()
        equal(os.path.ismount(m.path), False, "mounted")
        equal(errno_of(os.read, fd, 10), errno.ENOTCONN, "reading the old descriptor")
        errno_of(os.close, fd)


def test_unmount__nothing_open__daemon_ends_well():
    """umount is a way to stop it."""
    need_root()
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        ok(["umount", m.path])
        m.ends()


def test_second_start__same_mountpoint__refused():
    """One mount, one daemon (K09-09)."""
    need_root()
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        m.runs("a")
        r = run(m.command())
        assert r.returncode == 1 and "already" in r.stderr, r
        equal((mounts(m), daemons(m)), (1, [m.pid]), "mounts and daemons")
        equal(m.state("a"), "running", "the job")


class SlowAnswers(Mount):
    """A daemon whose other threads take their time over a read's answer, when the test says so."""

    def __init__(self, *options):
        super().__init__(*options, preload="slow_answers.c")
        self.env["ANSWERS_SLOW"] = self.dir + "/slow"

    def slow(self):
        """From now on."""
        write(self.env["ANSWERS_SLOW"], "")


class GoneCallers(Mount):
    """A daemon whose callers go before they are told of an open, when the test says so."""

    def __init__(self):
        super().__init__(preload="gone_callers.c")
        self.env["CALLERS_GONE"] = self.dir + "/gone"

    def lose(self, name):
        """Write a file, and go."""
        write(self.env["CALLERS_GONE"], "")
        equal(self.send(name, "lost"), errno.EIO, name)
        os.unlink(self.env["CALLERS_GONE"])


def test_abort__between_a_request_and_its_answer__closed_and_forgotten():
    """An open or a create that nobody was told of holds nothing: the next writer's close is the last."""
    with GoneCallers() as m:
        known = m.metric("npufs_inodes")
        for i in range(50):
            m.lose(f"n{i}.txt")
        equal(m.metric("npufs_inodes"), known, "inodes after creating")
        for text in ("once", "again"):
            m.put("n0.txt", text)
            equal(m.out("n0"), text + "\n", "a writer's job")
            m.lose("n0.txt")


def test_stop__a_reader_is_being_answered__not_answered_twice():
    """The device's thread is not back in time, for it has a read in its hands: that is its own."""
    with SlowAnswers(DELAY) as m:
        m.put("s.json", LONG_REQUEST)
        m.runs("s")
        m.slow()
        with subprocess.Popen(["cat", m.job("s.stream")], stdout=subprocess.PIPE) as cat:
            time.sleep(1)
            m.stop(status=1)
            cat.kill()


def test_stopped_daemon__df_and_ls__end_by_a_signal():
    """Those who ask a daemon that sleeps can be killed (K09-11)."""
    with Mount() as m:
        os.kill(m.pid, signal.SIGSTOP)
        try:
            for command in ("df", "ls"):
                with took(4, command):
                    r = run(["timeout", "-k", "1", "1", command, m.path])
                assert r.returncode in (124, 137, -9), r
        finally:
            os.kill(m.pid, signal.SIGCONT)
        ok(["ls", m.path])


def list_folder(m, i):
    """One round of a lister."""
    names = os.listdir(m.jobs)
    for name in names[i % 7::7]:
        errno_of(os.stat, m.job(name))


def stat_names(m, i):
    """One round of a poller of names that come and go."""
    for suffix in ("json", "out", "status"):
        errno_of(os.stat, m.job(f"c{i % 8}.{suffix}"))


def come_and_go(m, i):
    """One round of a user."""
    errno_of(m.put, f"c{i % 8}.json")
    errno_of(os.unlink, m.job(f"c{i % 8}.json"))


def loop(m, work, end, slowest):
    """Rounds of work until `end`; the longest goes to `slowest`."""
    i, worst = 0, 0
    while time.monotonic() < end:
        start = time.monotonic()
        work(m, i)
        worst = max(worst, time.monotonic() - start)
        i += 1
    slowest.append(worst)


def test_crowd__list_stat_create_remove__nobody_waits_long():
    """No cycle between the kernel's folder lock and the daemon (K09-13)."""
    slowest, end = [], time.monotonic() + 5
    with Mount() as m:
        threads = [threading.Thread(target=loop, args=(m, work, end, slowest))
                   for work in (list_folder, stat_names, come_and_go) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join((10 + 5) * SLOW)
        equal(len(slowest), 24, "loops that ended")
        assert max(slowest) < 2 * SLOW, slowest
        m.put("last.txt", "text")
        equal(m.out("last"), "text\n", "after it")


def test_hangup__foreground__goes_on():
    """SIGHUP leaves no dead mount (K09-14)."""
    with Mount() as m:
        for _ in range(3):
            os.kill(m.pid, signal.SIGHUP)
            time.sleep(0.05)
        ok(["ls", m.path])
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "a job")


def test_hangup__terminal_closes__goes_on():
    """The terminal of a foreground daemon goes; the mount lives (K09-14)."""
    need_root()
    need("script")
    with Unstarted() as m:
        script = subprocess.Popen(["script", "-qec", " ".join(m.command()), "/dev/null"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: os.path.exists(m.path + "/health"), 10, "mounted")
        script.kill()
        script.wait()
        time.sleep(0.3)
        ok(["ls", m.path])
        unmounted(m)


def test_stop__job_ends_in_time__drained():
    """A stop lets running jobs end, takes no new ones, and says so."""
    with Mount("sim_delay=20ms", "drain=20s") as m:
        m.put("a.txt", "t" * 40)
        m.runs("a")
        with open(m.job("a.out"), encoding="utf-8") as f:
            m.proc.send_signal(signal.SIGTERM)
            until(lambda: read(m.path + "/health").startswith("draining"), 5, "draining")
            equal(m.send("b.txt", "late"), errno.EROFS, "a new request")
            equal(os.path.exists(m.path + "/ready"), False, "ready")
            equal(f.read(), "t" * 40 + "\n", "the output")
        m.ends()


def test_stop__every_signal__status_0_and_unmounted():
    """SIGINT is a stop as well."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with Mount() as m:
            m.proc.send_signal(number)
            m.ends()
            equal(os.path.ismount(m.path), False, "mounted")


def test_stop__device_does_not_come_back__readers_answered_and_gone_in_time():
    """SIGTERM is not held up by an inference that takes for ever (K05-12)."""
    with Mount("fault=Wait@1:hang", "drain=0") as m:
        m.put("a.json")
        m.runs("a")
        until(lambda: 'npufs_device_calls_total{call="Wait"} 1\n' in read(m.path + "/metrics"), 5,
              "on the device")
        answers = []
        reader = threading.Thread(target=lambda: answers.append(errno_of(m.out, "a")))
        reader.start()
        until(lambda: m.metric("npufs_parked_requests") == 1, 5, "parked")
        with took(1.5, "the reader's answer"):
            m.proc.send_signal(signal.SIGTERM)
            reader.join()
        equal(answers, [errno.ESHUTDOWN])
        with took(4, "the end"):
            m.ends(status=1)
        equal(mounts(m), 0)
