"""Jobs survive: the spool under kills, damage, full and read-only disks."""

import errno
import os
import random
import re
import threading
import time

import harness
from harness import DELAY, LONG_REQUEST, Mount, equal, errno_of, need, need_root, ok, read, until
from harness import write


def spool_files(m):
    """Paths of the entries of the store of a daemon that does not run, by name of their file."""
    found = {}
    for folder, _, names in os.walk(m.store + "/jobs"):
        for name in names:
            path = os.path.join(folder, name)
            head = read(path)[:700] if name.isdigit() else ""
            if "\nname: " in head:
                found[re.search(r"\nname: (.*)\n", head).group(1)] = path
    return found


# --- kills ---------------------------------------------------------------------------------------


def test_kill__slow_and_queued_jobs__all_run_after_the_next_start():
    """Nothing is lost, nothing runs twice, no number is given again (K09-02)."""
    with Mount(DELAY, "max_active=1") as m:
        for i in range(8):
            m.put(f"j{i}.json", '{"prompt":"' + "abcdefgh"[i] * 3 + '"}')
        m.runs("j0")
        numbers = [m.status(f"j{i}")["job"] for i in range(8)]
        m.kill()
        m.start()
        equal(sorted(n for n in m.list() if n.endswith(".json")), [f"j{i}.json" for i in range(8)])
        for i in range(8):
            equal(m.out(f"j{i}"), "abcdefgh"[i] * 3 + "\n")
        equal([m.status(f"j{i}")["job"] for i in range(8)], numbers)
        equal(m.started(), 8, "each once")
        ends = [m.status(f"j{i}")["ended"] for i in range(8)]
        equal(ends, sorted(ends), "in the order of acceptance")
        m.put("new.txt", "n")
        assert int(m.done("new")["job"]) > max(map(int, numbers))


def test_restart__finished_jobs__as_they_were():
    """Owner, mode, times, results and status are those of before."""
    need_root()
    with Mount() as m:
        harness.as_user(harness.U1, m.put, "a.txt", "hello")
        m.done("a")
        os.chmod(m.job("a.txt"), 0o640)
        os.utime(m.job("a.txt"), (1000, 2000))
        os.mkdir(m.job("sub"), 0o750)
        harness.write(m.job("sub/note"), "inert")
        m.send("bad.json", "[]")
        names = ("a.txt", "a.out", "a.status", "bad.json", "bad.err", "sub/note")
        before = {n: os.lstat(m.job(n)) for n in names}
        texts = {n: read(m.job(n)) for n in before}
        m.kill()
        m.start()
        for name, s in before.items():
            now = os.lstat(m.job(name))
            equal((now.st_mode, now.st_uid, now.st_gid, now.st_size, now.st_mtime_ns),
                  (s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns), name)
            equal(read(m.job(name)), texts[name], name)
        equal(os.stat(m.job("sub")).st_mode & 0o777, 0o750)
        equal(m.started(), 0, "nothing runs again")


def writer(m, number, told, stop):
    """Write requests; note those whose close succeeded, and the results that were read."""
    for i in range(100000):
        if stop.is_set():
            return
        stem = f"w{number}-{i}"
        try:
            m.put(stem + ".txt", "text of " + stem)
            told.append(stem)
            if i % 3 == 0:
                assert m.out(stem) == f"text of {stem}\n", stem
        except OSError:
            return


def test_kill__under_load_again_and_again__every_confirmed_request_answered():
    """Whatever close confirmed is answered, once and right."""
    with Mount() as m:
        told, moments = [], random.Random(7)
        for round_ in range(12):
            stop = threading.Event()
            writers = [threading.Thread(target=writer, args=(m, f"{round_}-{k}", told, stop))
                       for k in range(3)]
            for w in writers:
                w.start()
            time.sleep(moments.uniform(0.02, 0.3))
            m.kill()
            stop.set()
            for w in writers:
                w.join()
            m.start()
        for stem in told:
            equal(m.out(stem), f"text of {stem}\n")
        for name in m.list():
            if name.endswith(".txt"):  # not confirmed, and yet there: empty, whole or failed
                stem = name[:-4]
                if os.path.getsize(m.job(name)) == 0:
                    equal(m.state(stem), "writing", stem)
                elif m.done(stem)["state"] == "done":
                    equal(m.out(stem), f"text of {stem}\n")
                else:
                    equal(m.status(stem)["error"], "103 ECONNABORTED", stem)


test_kill__under_load_again_and_again__every_confirmed_request_answered.limit = 120


def test_stop__jobs_queued__they_run_after_the_next_start():
    """A stop ends the waiting, not the jobs."""
    with Mount(DELAY, "max_active=1") as m:
        m.put("long.json", LONG_REQUEST)
        m.put("next.txt", "n")
        m.runs("long")
        m.stop()
        os.path.ismount(m.path) and ok(["umount", m.path])
        m.options = ("max_active=1",)
        m.start()
        equal(m.out("next"), "n\n")
        equal(m.out("long"), "s" * 300 + "\n")


def test_kill__while_written__fails_and_says_so():
    """Nobody knows whether it was whole, so it does not run."""
    with Mount() as m:
        fd = os.open(m.job("half.txt"), os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"the first half")
        m.kill()
        errno_of(os.close, fd)
        m.start()
        equal(m.status("half")["error"], "103 ECONNABORTED")
        # an errno that Python and others do not take for "ask again", and go on for ever
        equal(errno_of(m.out, "half"), errno.ECONNABORTED, "half.out")
        equal(m.started(), 0)
        m.put("half.txt", "whole")
        equal(m.out("half"), "whole\n")


# --- damage --------------------------------------------------------------------------------------


def test_damage__records_of_every_kind__start_and_told():
    """A damaged entry stops nothing, and somebody is told (K13-04)."""
    with Mount() as m:
        for name in ("empty", "random", "huge", "fine"):
            m.put(name + ".txt", name)
            m.done(name)
        m.stop()
        files = spool_files(m)
        os.truncate(files["empty.txt"], 0)
        size = os.path.getsize(files["random.txt"])
        write(files["random.txt"], os.urandom(size))
        os.truncate(files["huge.txt"], 2 << 30)
        write(m.store + "/jobs/unknown name", "?")
        os.symlink("/etc/passwd", m.store + "/jobs/0/999")
        m.start()
        equal(m.out("fine"), "fine\n")
        equal(m.out("huge"), "huge\n", "what follows the results is nothing")
        damaged = sorted(n for n in m.list() if n.startswith("damaged-") and n.endswith(".txt"))
        equal(len(damaged), 2, "shown")
        for name in damaged:
            equal(m.status(name[:-4])["error"], "5 EIO")
            assert "set aside" in m.status(name[:-4])["reason"]
        aside = os.listdir(m.store + "/jobs/aside")
        equal(len(aside), 4, f"aside: {aside}")
        assert not os.path.exists(m.job("empty.txt"))
        m.put("new.txt", "new")
        equal(m.out("new"), "new\n")
        m.stop()
        m.start()
        equal(m.out("new"), "new\n")


def test_damage__a_result__is_no_result():
    """Bytes that changed on the disk are not given out."""
    with Mount() as m:
        m.put("a.txt", "abcdef")
        m.done("a")
        m.stop()
        path = spool_files(m)["a.txt"]
        with open(path, "r+b") as f:
            f.seek(-3, os.SEEK_END)
            f.write(b"X")
        m.start()
        equal(errno_of(m.out, "a"), errno.EIO)
        m.put("a.txt", "again")
        equal(m.out("a"), "again\n")


# --- the disk ------------------------------------------------------------------------------------


class Small(Mount):
    """The spool on a file system of two mebibytes."""

    def start(self):
        os.makedirs(self.store + "/jobs", exist_ok=True)
        if not os.path.ismount(self.store + "/jobs"):
            ok(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", self.store + "/jobs"])
        return super().start()

    def clear(self):
        super().clear()
        harness.run(["umount", "-l", self.store + "/jobs"])


def test_full__spool_of_two_mebibytes__refused_and_well_again():
    """A cut request does not run, and room that is made is used (K13-01)."""
    need_root()
    with Small("request_size=64M", DELAY) as m:
        m.put("running.txt", "r" * 20)
        m.runs("running")
        equal(m.send("fu.txt", b" " * (4 << 20)), errno.ENOSPC)
        assert m.send("fu2.json", harness.REQUEST) in (0, errno.ENOSPC)
        equal(m.done("fu")["error"], "28 ENOSPC")
        equal(m.out("running"), "r" * 20 + "\n", "what ran goes on")
        os.unlink(m.job("fu.txt"))
        m.put("fu3.txt", "room")
        equal(m.out("fu3"), "room\n")


def test_full__no_room_for_the_output__failed_with_enospc():
    """A result that could not be stored is none."""
    need_root()
    with Small("request_size=64M", "batch_size=64M", DELAY) as m:
        m.put("a.txt", "a" * 30)
        m.runs("a")
        fd = os.open(m.job("filler"), os.O_CREAT | os.O_WRONLY)
        while errno_of(os.write, fd, b"x" * 4096) == 0:
            pass
        m.done("a")
        assert m.state("a") == "done" or m.status("a")["error"] == "28 ENOSPC", m.status("a")
        os.close(fd)
        os.unlink(m.job("filler"))
        m.put("a.txt", "again")
        equal(m.out("a"), "again\n")


def test_read_only__store__refused_with_erofs_and_readable():
    """What is there can be read; nothing new is taken."""
    need_root()
    with Small() as m:
        m.put("a.txt", "there")
        m.done("a")
        m.stop()
        ok(["mount", "-o", "remount,ro", m.store + "/jobs"])
        m.start()
        equal(m.out("a"), "there\n")
        equal(m.send("b.txt", "x"), errno.EROFS)
        equal(errno_of(os.unlink, m.job("a.txt")), errno.EROFS)
        equal(errno_of(os.mkdir, m.job("d")), errno.EROFS)
        assert read(m.path + "/health").startswith("ready")


def test_store__used_by_another__refused():
    """Two daemons on one spool would destroy it."""
    with Mount() as m:
        other = m.dir + "/other"
        os.mkdir(other)
        r = harness.run([m.program, m.store, other, "-f", "-o", "device=null"])
        equal(r.returncode, 1)
        assert "another npufs uses this store" in r.stderr, r.stderr


def test_durable__close_returns__after_the_sync():
    """With durable the disk has the request before close returns; fsync does so always."""
    need("strace")
    need_root()
    with Mount("durable") as m:
        trace = m.dir + "/trace"
        tracer = harness.subprocess.Popen(
            ["strace", "-f", "-qq", "-e", "trace=fsync,syncfs", "-o", trace, "-p", str(m.pid)],
            stderr=harness.subprocess.DEVNULL)
        try:
            until(lambda: os.path.exists(trace), 10, "strace")
            time.sleep(0.5)
            syncs = lambda: read(trace).count("= 0")
            m.put("a.txt", "a")
            assert syncs() >= 3, "the file, its folder, the spool's folder: " + read(trace)
            now = syncs()
            write(m.job("note"), "n")
            equal(syncs(), now, "a file that is no request")
            os.rename(m.job("note"), m.job("note.txt"))
            assert syncs() > now, "the rename that submits"
            now = syncs()
            fd = os.open(m.job("other"), os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"x")
            os.fsync(fd)
            assert syncs() > now, "fsync"
            now = syncs()
            os.rename(m.job("other"), m.job("other.txt"))
            equal(syncs(), now, "the rename of what is being written")
            os.close(fd)
            assert syncs() > now, "the close of what became a request"
            now = syncs()
            fd = os.open(m.job("thread.txt"), os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"x")
            closer = threading.Thread(target=os.close, args=(fd,))
            closer.start()
            closer.join()
            assert syncs() > now, "the close in another thread"
        finally:
            tracer.terminate()
            tracer.wait()


# --- retention and shares ------------------------------------------------------------------------


def test_keep__results_older_than_that__removed():
    """keep= removes finished requests, and nothing else."""
    with Mount("keep=1s") as m:
        m.put("old.txt", "o")
        m.done("old")
        write(m.job("note"), "n")
        m.put("waits.txt", "")
        until(lambda: not os.path.exists(m.job("old.txt")), 10, "old is removed")
        equal(sorted(m.list()), ["note", "waits.status", "waits.txt"])


def test_user_bytes__reached__edquot_for_that_user_alone():
    """One user's share is no other's."""
    need_root()
    with Mount("user_bytes=1M", "user_files=20", "request_size=4M") as m:
        equal(harness.as_user(harness.U1, m.send, "a.txt", "a" * (2 << 20)), errno.EDQUOT)
        equal(harness.as_user(harness.U2, m.send, "b.txt", "b"), 0)
        got = [harness.as_user(harness.U2, errno_of, write, m.job(f"n{i}"), "") for i in range(20)]
        equal(got, [0] * 19 + [errno.EDQUOT])
        equal(harness.as_user(harness.U1, errno_of, write, m.job("more"), ""), 0)
