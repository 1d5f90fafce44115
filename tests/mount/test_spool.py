"""The spool on real kills, full disks and disks that cannot be written (K09-02, K13-01, K13-04)."""

import errno
import glob
import json
import os
import random
import signal
import threading
import time

from harness import (BUILD, DELAY, LONG_REQUEST, REQUEST, Mount, equal, errno_of, need_root,
                     ok, read, run, until)


def request(i):
    """One whose answer is its own."""
    return json.dumps({"prompt": f"number {i}", "max_new_tokens": 4})


def serves(m):
    """The dead mount may still be there."""
    try:
        return m.serves()
    except OSError as e:
        assert e.errno == errno.ENOTCONN, e
        return False


def crash(m):
    """kill -9, and the next start on the same store."""
    m.proc.kill()
    m.proc.wait()
    m.wait = False
    m.start()
    until(lambda: serves(m), 10, "the daemon serves again")


def number_of(m, stem):
    """The job's number."""
    return int(m.status(stem)["job"])


def entries(m):
    """The spool's entries, oldest first."""
    return sorted(glob.glob(m.store + "/jobs/[0-9]*/*"), key=lambda p: int(os.path.basename(p)))


def test_crash__jobs_running_and_queued__all_run_once_and_numbers_are_new():
    """K09-02."""
    need_root()
    with Mount(DELAY, "max_active=3") as m:
        stems = [f"slow{i}" for i in range(3)] + [f"queued{i}" for i in range(5)]
        for stem in stems:
            m.put(stem + ".json", '{"prompt":"abc","max_new_tokens":3}')
        m.runs("slow0")
        numbers = [number_of(m, stem) for stem in stems]
        crash(m)
        for stem in stems:
            equal(m.done(stem, 40)["state"], "done", stem)
        equal([number_of(m, stem) for stem in stems], numbers, "numbers")
        equal(len(set(numbers)), 8, "different numbers")
        equal(m.started(), 8, "jobs started")
        m.put("new.json")
        assert number_of(m, "new") > max(numbers)


class Client(threading.Thread):
    """Writes requests until it is told to stop; keeps which were confirmed by close(2)."""

    def __init__(self, m, me):
        super().__init__(daemon=True)
        self.m, self.me, self.confirmed, self.over = m, me, [], False

    def run(self):
        n = 0
        while not self.over:
            n += 1
            try:
                self.m.put(f"c{self.me}-{n}.json", request(f"{self.me}-{n}"))
                self.confirmed.append(f"{self.me}-{n}")
            except OSError:
                time.sleep(0.01)


def test_crash__twenty_times_under_load__no_confirmed_job_is_lost_or_done_twice():
    """What close(2) said is so (K09-02)."""
    need_root()
    with Mount("queue=100000", "user_queue=100000") as m:
        clients = [Client(m, i) for i in range(5)]
        for c in clients:
            c.start()
        for _ in range(20):
            time.sleep(random.uniform(0.01, 0.15))
            crash(m)
        for c in clients:
            c.over = True
            c.join(10)
        confirmed = [x for c in clients for x in c.confirmed]
        assert len(confirmed) > 50, len(confirmed)
        for x in confirmed:
            equal(m.done("c" + x)["state"], "done", x)
        numbers = [number_of(m, "c" + x) for x in confirmed]
        equal(len(set(numbers)), len(numbers), "different numbers")
        for x in random.sample(confirmed, 50):
            m.put("again.json", request(x))
            equal(m.out("c" + x), m.out("again"), x)


def test_stop__with_queued_jobs__they_run_after_the_next_start():
    """SIGTERM keeps what it cannot finish."""
    need_root()
    with Mount(DELAY, "max_active=1") as m:
        m.put("long.json", LONG_REQUEST)
        m.runs("long")
        m.put("short.json", '{"prompt":"a","max_new_tokens":1}')
        number = number_of(m, "short")
        m.stop()
        m.start()
        equal(number_of(m, "short"), number, "number")
        os.unlink(m.job("long.json"))
        equal(m.done("short", 40)["state"], "done", "state")


def test_full__spool_of_2_mib__is_said_and_works_after_room_is_made():
    """K13-01."""
    need_root()
    m = Mount("request_size=16M")
    ok(["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", m.store])
    os.mkdir(m.store + "/models", 0o755)
    with m:
        assert run(["dd", "if=/dev/zero", "bs=1M", "count=4", "of=" + m.job("fu.txt")]).returncode
        os.unlink(m.job("fu.txt"))  # zeros are no text; these bytes are
        equal(m.send("fu.txt", "x" * (4 << 20)), errno.ENOSPC, "more than there is room for")
        equal(m.state("fu"), "failed", "the cut request")
        equal(m.send("fu2.txt", "x" * 65536), errno.ENOSPC, "on a full disk")
        if m.send("fu4.json", REQUEST) == 0:  # small enough for what was made ahead
            equal(m.done("fu4")["state"], "done", "what was taken")
        os.unlink(m.job("fu.txt"))
        m.put("fu3.json")
        equal(m.done("fu3")["state"], "done", "after room was made")
        m.stop()


def test_start__damaged_entries__are_put_aside_and_shown():
    """K13-04."""
    need_root()
    with Mount() as m:
        for i in range(4):
            m.put(f"r{i}.json")
            m.done(f"r{i}")
        m.stop()
        outside = m.dir + "/outside"
        os.mkdir(outside)
        found = entries(m)
        equal(len(found), 4, "entries")
        os.truncate(found[0], 0)
        with open(found[1], "wb") as f:
            f.write(os.urandom(5000))
        os.truncate(found[2], 0)
        os.truncate(found[2], 2 << 30)
        with open(m.store + "/jobs/what is this", "wb") as f:
            f.write(b"x")
        os.symlink(outside, m.store + "/jobs/1")
        m.start()
        equal(m.state("r3"), "done", "the good one")
        for path in found[:3]:
            stem = "damaged-" + os.path.basename(path)
            equal(m.state(stem), "failed", stem)
            assert "damaged" in m.err(stem)["reason"], m.err(stem)
        equal(len(os.listdir(m.store + "/jobs/aside")), 5, "aside")
        equal(os.listdir(outside), [], "what the link leads to")
        m.put("more.json")
        equal(m.done("more")["state"], "done", "a new one")


def test_start__store_read_only__serves_and_says_erofs():
    """Results are read, nothing new is taken."""
    need_root()
    with Mount() as m:
        m.put("a.json")
        out = m.out("a")
        m.done("a")
        m.stop()
        ok(["mount", "--bind", m.store, m.store])
        ok(["mount", "-o", "remount,bind,ro", m.store])
        try:
            m.start()
            equal(m.out("a"), out, "a result of before")
            equal(m.send("b.json", REQUEST), errno.EROFS, "a new request")
            equal(errno_of(os.unlink, m.job("a.json")), errno.EROFS, "unlink")
            equal(errno_of(os.mkdir, m.job("d")), errno.EROFS, "mkdir")
            assert read(m.path + "/health").startswith("ready"), read(m.path + "/health")
            m.stop()
        finally:
            run(["umount", m.store])


def test_start__second_daemon_on_one_store__is_refused():
    """Two would run every job twice."""
    need_root()
    with Mount() as m:
        other = m.dir + "/other"
        os.mkdir(other)
        second = run([os.path.join(BUILD, "npufs"), m.store, other, "-f", "-o", "device=null"])
        assert second.returncode, "the second one started"
        assert "another npufs uses this store" in second.stderr, second.stderr
        m.put("a.json")
        equal(m.done("a")["state"], "done", "the first one goes on")
