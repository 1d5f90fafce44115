"""inotify: what watchers of jobs/ see, without and with -o inotify (K10-05)."""

import errno
import os
import pwd
import signal
import stat
import subprocess
import threading
import time

from harness import (DELAY, LONG_REQUEST, SLOW, TOP, U1, U2, Mount, as_user, become, equal,
                     errno_of, need, need_root, ok, open_fuse_device, read, run, took, until)

EVENTS = "create,close_write,moved_to,moved_from,delete,modify,attrib"


class Watch:
    """inotifywait on a folder; what it has seen, as (event, name)."""

    def __init__(self, folder, uid=None, recursive=False, events=EVENTS):
        need("inotifywait")
        self.seen = []
        command = ["inotifywait", "-m", "--format", "%e %w%f", "-e", events, folder]
        self.proc = subprocess.Popen(command + (["-r"] if recursive else []), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     preexec_fn=None if uid is None else lambda: become(uid))
        self.top = folder
        for line in self.proc.stderr:
            if "established" in line:
                break
        else:
            raise AssertionError("inotifywait does not watch")
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.proc.stdout:
            events, path = line.rstrip("\n").split(" ", 1)
            self.seen += [(e, os.path.relpath(path, self.top)) for e in events.split(",")
                          if e not in ("CLOSE", "ISDIR")]

    def of(self, name):
        """The events of one name, in order."""
        return [e for e, n in self.seen if n == name]

    def comes(self, *names, seconds=10):
        """Wait until each name was created and closed after writing."""
        until(lambda: all("CLOSE_WRITE" in self.of(n) for n in names), seconds,
              f"events of {names} in {self.seen[-20:]}")
        for name in names:
            equal(self.of(name), ["CREATE", "CLOSE_WRITE"], name)

    def end(self):
        """Stop watching; everything seen."""
        self.proc.terminate()
        self.proc.wait()
        self.thread.join()
        return self.seen

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def test_inotify__without_the_option__events_of_the_users_only():
    """What the daemon makes sends no events; reading waits instead (K10-05)."""
    with Mount() as m:
        with Watch(m.jobs) as w:
            m.put("no.json")
            equal(m.out("no"), "x\n")
            time.sleep(0.3)
            equal(w.end(), [("CREATE", "no.json"), ("MODIFY", "no.json"),
                            ("CLOSE_WRITE", "no.json")])


def test_inotify__sessions__what_programs_do_and_nothing_else():
    """mkdir, length and rmdir are seen; what jobs make and free is not (K10-05)."""
    with Mount("inotify") as m:
        folder = m.path + "/sessions"
        os.mkdir(folder + "/mine")
        with Watch(folder) as w, Watch(folder + "/mine") as inner:
            m.put("a.json", '{"prompt":"x","session":"made"}')
            equal(m.done("a")["state"], "done")
            os.mkdir(folder + "/b")
            ok(f"echo 0 > {folder}/mine/length")
            os.rmdir(folder + "/b")
            os.rmdir(folder + "/mine")
            time.sleep(0.3)
            equal(w.end(), [("CREATE", "b"), ("DELETE", "b"), ("DELETE", "mine")], "sessions/")
            inner.end()
            equal(list(dict.fromkeys(inner.of("length"))), ["MODIFY", "CLOSE_WRITE"], "a session")


def test_inotify__with_the_option__results_come_once_and_are_whole():
    """CREATE and CLOSE_WRITE of .out, and of .err when it failed (K10-05)."""
    with Mount("inotify") as m:
        with Watch(m.jobs) as w:
            m.put("a.json", '{"prompt":"text of some length"}')
            w.comes("a.out")
            equal(read(m.job("a.out")), "text of some length\n")
            st = os.stat(m.job("a.out"))
            equal((stat.S_IMODE(st.st_mode), st.st_size), (0o400, 20), "mode and size")
            equal(m.send("b.json", '{"promt":"x"}'), errno.EINVAL)
            w.comes("b.err")
            assert "promt" in read(m.job("b.err"))
            m.put("half", "later")
            os.rename(m.job("half"), m.job("c.txt"))
            w.comes("c.out")
            names = {n for _, n in w.end()}
            equal(names, {"a.json", "a.out", "b.json", "b.err", "half", "c.txt", "c.out"})
        equal(m.metric("npufs_inotify_announced_total"), 3, "announced")
        equal(m.metric("npufs_inotify_dropped_total"), 0, "dropped")


def test_inotify__result_open_or_known_already__announced_and_still_right():
    """A reader that waits, and names the kernel has cached, are not disturbed."""
    with Mount("inotify", "sim_delay=20ms") as m:
        with Watch(m.jobs) as w:
            m.put("a.txt", "abcdef")
            os.stat(m.job("a.out"))
            with open(m.job("a.out"), encoding="utf-8") as f:
                equal(f.read(), "abcdef\n")
                w.comes("a.out")
                f.seek(0)
                equal(f.read(), "abcdef\n", "the old descriptor")
                equal(os.fstat(f.fileno()).st_ino, os.stat(m.job("a.out")).st_ino, "inode")
                equal(os.fstat(f.fileno()).st_size, 7)
            os.unlink(m.job("a.out"))
            equal(errno_of(os.stat, m.job("a.out")), errno.ENOENT, "removed")


def test_inotify__a_new_run_of_the_same_file__announced_again():
    """Each run's result is news."""
    with Mount("inotify") as m:
        with Watch(m.jobs) as w:
            for i in range(3):
                m.put("a.txt", f"{i}")
                until(lambda i=i: w.of("a.out") == ["CREATE", "CLOSE_WRITE"] * (i + 1), 10, f"{i}")
                equal(m.out("a"), f"{i}\n")


def test_inotify__subfolders_and_renames__found_where_they_are():
    """The path is that of the moment; what was removed is not announced."""
    with Mount("inotify", "sim_delay=20ms") as m:
        os.makedirs(m.job("one/two three"))
        with Watch(m.jobs, recursive=True) as w:
            m.put("one/two three/ä.txt", "text")
            w.comes("one/two three/ä.out")
            m.put("one/moved.txt", "m" * 20)
            os.rename(m.job("one"), m.job("other"))
            os.rename(m.job("other/moved.txt"), m.job("other/new.txt"))
            until(lambda: m.state("other/new") == "done", 10, "the end")
            until(lambda: any("CLOSE_WRITE" == e and n.endswith("new.out") for e, n in w.seen), 10,
                  "the renamed one's")
            m.put("gone.txt", "g" * 50)
            m.runs("gone")
            os.unlink(m.job("gone.txt"))
            m.put("last.txt", "x")
            w.comes("last.out")
            equal([n for _, n in w.seen if n.startswith("gone.") and n != "gone.txt"], [])


def test_inotify__another_users_watch__sees_them_too():
    """Watches of users who are not root; and folders with no right for anybody."""
    need_root()
    with Mount("inotify") as m:
        with Watch(m.jobs, uid=U1) as w:
            as_user(U1, m.put, "u1.txt", "text")
            as_user(U2, m.put, "u2.txt", "text")
            w.comes("u1.out", "u2.out")
        as_user(U1, os.mkdir, m.job("d"), 0o700)
        as_user(U1, m.put, "d/a.txt", "text")
        with Watch(m.job("d"), uid=U1) as w:
            as_user(U1, m.put, "d/b.txt", "text")
            w.comes("b.out")


def test_inotify__mounted_by_a_user__announced():
    """It needs no privilege."""
    need_root()
    uid = pwd.getpwnam("nobody").pw_uid  # fusermount3 asks for the user's name
    m = Mount("inotify", uid=uid, wait=False)
    try:
        open_fuse_device(m)
        m.start()
        until(m.serves, 10, "the daemon serves")
        with Watch(m.jobs, uid=uid) as w:
            as_user(uid, m.put, "a.txt", "text")
            w.comes("a.out")
        m.stop()
    finally:
        m.clear()


def test_inotify__two_hundred_in_a_row__all_announced():
    """None is lost."""
    names = [f"n{i}" for i in range(200)]
    with Mount("inotify") as m:
        with Watch(m.jobs) as w:
            for name in names:
                m.put(name + ".txt", name)
            w.comes(*(name + ".out" for name in names), seconds=30)
        equal(m.metric("npufs_inotify_announced_total"), 200, "announced")


def test_inotify__users_who_try_the_same__get_no_more_than_before():
    """Nobody but the daemon's thread may create a result, or sees it missing."""
    need_root()
    with Mount("inotify") as m:
        as_user(U1, m.put, "a.txt", "text")
        until(lambda: m.metric("npufs_inotify_announced_total") == 1, 10, "announced")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        for uid in (0, U1, U2):
            equal(as_user(uid, errno_of, os.open, m.job("a.out"), flags), errno.EEXIST, "a.out")
            equal(as_user(uid, errno_of, os.open, m.job("z.out"), flags), errno.EPERM, "z.out")
            equal(as_user(uid, errno_of, os.stat, m.path + "/.npufs-announce"), errno.ENOENT)
            equal(as_user(uid, errno_of, os.stat, m.job("a.out")), 0)


def feed(m, halt):
    """Jobs without end."""
    i = 0
    while not halt.is_set():
        if m.send(f"f{i % 50}.txt", "text") not in (0, errno.EBUSY):
            return
        i += 1


def under_load(m, end):
    """Call end() while jobs come and go."""
    halt = threading.Event()
    threads = [threading.Thread(target=feed, args=(m, halt)) for _ in range(2)]
    for t in threads:
        t.start()
    until(lambda: m.metric("npufs_inotify_announced_total") > 20, 20, "some are announced")
    try:
        with took(8, "the end"):
            end()
    finally:
        halt.set()
        for t in threads:
            t.join()
    equal(os.path.ismount(m.path), False, "mounted")


def test_inotify__stop_and_unmount_under_load__no_hang():
    """SIGTERM, lazy unmount and an aborted connection end the thread wherever it is."""
    need_root()
    with Mount("inotify") as m:
        under_load(m, m.stop)
    with Mount("inotify") as m:
        under_load(m, lambda: (ok(["umount", "-l", m.path]), m.ends()))
    with Mount("inotify") as m:
        under_load(m, lambda: (run(["umount", "-f", m.path]), run(["umount", "-l", m.path]),
                               m.ends()))


def test_inotify__idle__umount_finds_it_free():
    """Between announcements nothing of the mount is held."""
    need_root()
    with Mount("inotify") as m:
        m.put("a.txt", "text")
        until(lambda: m.metric("npufs_inotify_announced_total") == 1, 10, "announced")
        time.sleep(0.05)
        ok(["umount", m.path])
        m.ends()


def test_inotify__something_mounted_over_it__nothing_created_there():
    """The thread never makes a file in another file system."""
    need_root()
    with Mount("inotify", DELAY) as m:
        jobs = os.open(m.jobs, os.O_PATH)
        m.put("a.txt", "abc")
        ok(["mount", "-t", "tmpfs", "none", m.path])
        os.mkdir(m.jobs)
        out = f"/proc/self/fd/{jobs}/a.out"
        equal(read(out), "abc\n", "the job below")
        time.sleep(0.3)
        equal(os.listdir(m.jobs), [], "in the other file system")
        os.close(jobs)
        ok(["umount", m.path])
        m.put("b.txt", "b")
        until(lambda: m.metric("npufs_inotify_announced_total") == 1, 10, "announced again")


def test_inotify__stopped_watcher_or_reader__daemon_goes_on():
    """A watcher that does not read holds up nobody."""
    with Mount("inotify") as m:
        with Watch(m.jobs) as w:
            w.proc.send_signal(signal.SIGSTOP)
            for i in range(50):
                m.put(f"s{i}.txt", "text")
                equal(m.out(f"s{i}"), "text\n")
            w.proc.send_signal(signal.SIGCONT)
            w.comes(*(f"s{i}.out" for i in range(50)))


def test_inotify__many_wait_on_the_device__stop_announces_nothing_false():
    """Jobs that the stop ends are no reason to stay."""
    with Mount("inotify", DELAY) as m:
        for i in range(20):
            m.put(f"l{i}.json", LONG_REQUEST)
        m.runs("l0")
        with took(6, "the stop"):
            m.stop()


def test_example__watch_sh__prints_what_comes():
    """examples/watch.sh prints each output, and each failure's reason."""
    need("inotifywait", "mkfifo")
    with Mount("inotify") as m:
        os.mkdir(m.job("sub"))
        script = subprocess.Popen(["sh", os.path.join(TOP, "examples/watch.sh"), m.jobs, "3"],
                                  stdout=subprocess.PIPE, text=True)
        until(lambda: watches(script.pid), 10, "it watches")
        m.put("a.txt", "first")
        equal(script.stdout.readline(), "a.out: first\n")
        m.put("sub/b c.txt", "second")
        equal(script.stdout.readline(), "sub/b c.out: second\n")
        m.send("d.json", '{"promt":"x"}')
        equal(script.stdout.readline(),
              'd.err: unknown field "promt"; did you mean "prompt"?\n')
        equal(script.wait(5 * SLOW), 0, "status")


def watches(parent):
    """Has a child of that process set its watches?"""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1]) != parent:
                continue
            fds = os.listdir(f"/proc/{pid}/fdinfo")
            # the folder and the one below it
            if any(read(f"/proc/{pid}/fdinfo/{fd}").count("inotify wd:") >= 2 for fd in fds):
                return True
        except OSError:
            pass
    return False
