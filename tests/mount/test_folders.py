"""Large folders: complete listings, sane positions, memory that comes back (K11)."""

import os
import threading
import time

from harness import DELAY, SANITIZED, SLOW, U1, Mount, as_user, equal, ok, read, run, took, tool, until

STREAMED = '{"prompt":"%s","stream":true}' % ("s" * 300)


def fill(m, count, prefix="f"):
    """So many finished jobs."""
    for i in range(count):
        m.put(f"{prefix}{i}.txt", "x")
    until(lambda: m.metric("npufs_jobs_queued") + m.metric("npufs_jobs_running") == 0, 30,
          "all ended")


def test_listing__entries_removed_meanwhile__none_skipped():
    """A position is no index (K11-01)."""
    with Mount() as m:
        fill(m, 1500)
        equal(ok([tool("dir"), "unlink", m.jobs]), "left 0\n", "removed while listing")
        fill(m, 1500)
        equal(run(f"rm -rf {m.jobs}/*").returncode, 0, "rm -rf")
        equal(m.list(), [], "left")
        os.mkdir(m.job("sub"))
        fill(m, 500, "sub/")
        m.put("sub/empty.json", "")
        ok(["rm", "-r", m.job("sub")])
        equal(m.list(), [], "left")


def test_listing__removed_one_by_one_while_jobs_run__no_complaints():
    """rm -r meets nothing that is gone already or busy (K11-01)."""
    with Mount(DELAY) as m:
        os.mkdir(m.job("sub"))
        for i in range(20):
            m.put(f"sub/{i}.json", STREAMED)
        m.runs("sub/0")
        r = run(["rm", "-r", m.job("sub")])
        equal((r.returncode, r.stderr, m.list()), (0, "", []), "rm -r")
        until(lambda: m.metric("npufs_jobs_running") == 0, 2, "nothing runs")


def test_listing__entries_come_and_go__each_of_the_others_once():
    """What is there all the time is listed exactly once (K11-01)."""
    with Mount() as m:
        fill(m, 500)
        want, stop = set(m.list()), threading.Event()

        def churn():
            i = 0
            while not stop.is_set():
                m.put(f"z{i % 50}.bin", "x")
                os.unlink(m.job(f"z{i % 50}.bin"))
                i += 1

        thread = threading.Thread(target=churn)
        thread.start()
        for _ in range(20):
            names = [n for n in os.listdir(m.jobs) if not n.startswith("z")]
            equal((len(names), set(names) == want), (len(want), True), "listing")
        stop.set()
        thread.join()


def test_position__seekdir_and_rewinddir__as_on_a_disk():
    """The rest is the same again; a rewind shows what is new (K11-03)."""
    with Mount() as m:
        fill(m, 300)
        equal(ok([tool("dir"), "seek", m.jobs, "new-file"]), "rest 892\n", "entries after ten")


def test_many_jobs__listed__fast_and_health_answers_meanwhile():
    """Five thousand finished jobs are no burden (K11-05)."""
    with Mount() as m:
        before = m.rss()
        with took(30, "writing"):
            fill(m, 5000)
        with took(1, "ls -f"):
            equal(len(ok(["ls", "-f", m.jobs]).split()), 15002, "entries")
        slowest, thread = [], threading.Thread(target=ok, args=(["ls", "-l", m.jobs],))
        with took(6, "ls -l"):
            thread.start()
            while thread.is_alive():
                start = time.monotonic()
                read(m.path + "/health")
                slowest.append(time.monotonic() - start)
                time.sleep(0.01)
        assert max(slowest) < 0.5 * SLOW, max(slowest)
        per_job = (m.rss() - before) * 1024 / 5000
        assert SANITIZED or per_job < 4096, f"{per_job} bytes a job"


def test_memory__files_made_and_removed__inodes_and_memory_come_back():
    """Every inode the kernel forgot is forgotten (K11-06)."""
    with Mount() as m:
        fill(m, 200)
        ok(f"rm -f {m.jobs}/*")
        before, known = m.rss(), m.metric("npufs_inodes")
        for i in range(8000):
            m.put(f"l{i % 100}.txt", "x")
            os.unlink(m.job(f"l{i % 100}.txt"))
        list(os.walk(m.path))
        until(lambda: m.metric("npufs_inodes") <= known + 2, 5, "inodes")
        equal(m.metric("npufs_files"), 0, "files")
        equal(m.metric("npufs_bytes"), 0, "bytes")
        assert SANITIZED or m.rss() - before < 4096, (before, m.rss())


def test_removed_while_open__content_stays_until_the_close():
    """An unlinked file lives as long as it is open, and runs nothing."""
    with Mount() as m:
        fd = os.open(m.job("u.txt"), os.O_RDWR | os.O_CREAT, 0o600)
        os.write(fd, b"before")
        os.unlink(m.job("u.txt"))
        os.write(fd, b" after")
        os.ftruncate(fd, 8)
        equal((os.pread(fd, 100, 0), os.fstat(fd).st_nlink), (b"before a", 0), "open file")
        m.put("u.txt", "another")
        equal(m.out("u"), "another\n", "the new one of that name")
        os.close(fd)
        until(lambda: m.metric("npufs_bytes") == 7, 5, "the daemon is told of the close behind it")
        equal((m.started(), m.metric("npufs_files")), (1, 1), "figures")


def test_removed_folder__still_a_working_directory__enoent():
    """Inside a removed folder nothing can be made."""

    def inside(m):
        os.mkdir(m.job("d"))
        os.chdir(m.job("d"))
        os.rmdir(m.job("d"))
        try:
            os.close(os.open("x.txt", os.O_CREAT | os.O_WRONLY))
        except FileNotFoundError:
            return os.listdir(".")
        return None

    with Mount() as m:
        equal(as_user(U1, inside, m), [], "listing and creating")
