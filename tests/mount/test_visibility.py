"""Nothing is cached longer than it is true (K10)."""

import errno
import os
import threading

from harness import (DELAY, LONG_REQUEST, SLOW, Mount, equal, errno_of, ok, read, took, until)


def test_missing_name__then_made__seen_at_once():
    """"No such file" is not remembered (K10-01)."""
    with Mount() as m:
        for i in range(20):
            names = [m.job(f"nc{i}{suffix}") for suffix in (".out", ".status", ".json", ".err")]
            for name in names:
                equal(errno_of(os.stat, name), errno.ENOENT, name)
            m.put(f"nc{i}.json")
            for name in names[:3]:
                os.stat(name)
            assert f"nc{i}.json" in m.list()


def test_removed_name__then_asked__gone_at_once():
    """Nor is a name that is no more (K10-01)."""
    with Mount() as m:
        for i in range(20):
            m.put("a.txt", f"{i}")
            m.done("a")
            for name in ("a.txt", "a.out", "a.status"):
                os.stat(m.job(name))
            os.unlink(m.job("a.txt"))
            for name in ("a.txt", "a.out", "a.status"):
                equal(errno_of(os.stat, m.job(name)), errno.ENOENT, name)


def test_status__every_state__shown_within_half_a_second():
    """A text of the same length is a new text (K10-02)."""
    with Mount(DELAY, "max_active=1") as m:
        m.put("first.txt", "12345678")
        m.put("cs.txt", "1")
        fd = os.open(m.job("cs.status"), os.O_RDONLY)
        for state, change in (("queued", lambda: None),
                              ("running", lambda: os.unlink(m.job("first.txt"))),
                              ("done", lambda: m.out("cs"))):
            change()
            until(lambda: m.state("cs") == state, 0.5, state)
            equal(os.pread(fd, 100, 0).split(b"\n")[0].decode(), "state: " + state, "open fd")
        equal(os.fstat(fd).st_size, len(os.pread(fd, 65536, 0)), "size of the open file")
        os.close(fd)


def test_status__changes_between_two_reads__never_half_of_each():
    """`cat` gets one text; who comes back after its end gets what is new (K04-05, K04-10)."""
    with Mount(DELAY, "max_active=1") as m:
        m.put("first.json", LONG_REQUEST)
        m.put("cs.json", LONG_REQUEST)
        fd = os.open(m.job("cs.status"), os.O_RDONLY)
        text = os.read(fd, 20) + os.read(fd, 4096)
        os.unlink(m.job("first.json"))
        m.runs("cs")
        equal((text.split(b"\n")[0], os.read(fd, 4096)), (b"state: queued", b""), "one text")
        rest = os.read(fd, 4096)
        now = os.pread(fd, 4096, 0)
        assert now.startswith(b"state: running\n"), now
        equal((len(rest), rest[-80:]), (len(now) - len(text), now[-80:]), "what is new")
        os.close(fd)


def test_rerun__same_size__new_text_through_old_and_new_opens():
    """Two runs of equal length: the second's text is seen (K10-02)."""
    with Mount() as m:
        for text in ("aaaa", "bbbb", "cccc"):
            m.put("r.txt", text)
            equal(m.out("r"), text + "\n", "output")
            equal(read(m.job("r.txt")), text, "request")
            equal(ok(["cat", m.job("r.out")]), text + "\n", "output by cat")


def test_rerun__reader_of_the_old_run__keeps_the_old_text():
    """An open result belongs to its run."""
    with Mount() as m:
        m.put("r.txt", "first")
        m.done("r")
        fd = os.open(m.job("r.out"), os.O_RDONLY)
        status = os.open(m.job("r.status"), os.O_RDONLY)
        old = os.pread(status, 4096, 0)
        for text in ("second", "3rd", "fifth"):  # the last is as long as the first
            m.put("r.txt", text)
            equal(m.out("r"), text + "\n", "new open")
            equal(os.pread(fd, 100, 0), b"first\n", "old open")
        equal(os.pread(status, 4096, 0), old, "the old status")
        for opened in (fd, status):
            os.close(opened)


def test_health__read_through_one_descriptor__one_text_new_opens_new_text():
    """A live text is rendered per open."""
    with Mount(DELAY) as m:
        fd = os.open(m.path + "/health", os.O_RDONLY)
        m.put("a.json", LONG_REQUEST)
        m.runs("a")
        assert b"running: 0" in os.pread(fd, 4096, 0)
        assert "running: 1" in read(m.path + "/health")
        os.close(fd)


def test_many_pollers__one_job__all_see_it():
    """Whoever polls by name sees the result when it is there (K10-01)."""
    seen = []

    def poll(path):
        until(lambda: os.path.exists(path) and os.path.getsize(path) > 0, 10, "the output")
        seen.append(read(path))

    with Mount("sim_delay=20ms") as m:
        threads = [threading.Thread(target=poll, args=(m.job("p.out"),)) for _ in range(10)]
        for t in threads:
            t.start()
        m.put("p.txt", "polled")
        for t in threads:
            t.join(15 * SLOW)
        equal(seen, ["polled\n"] * 10, "what they read")


def test_listing__jobs_end_meanwhile__answers_at_once():
    """Listing never waits for the device."""
    with Mount(DELAY) as m:
        for i in range(20):
            m.put(f"l{i}.json", LONG_REQUEST)
        with took(1, "ls -l"):
            ok(["ls", "-l", m.jobs])
        ok(f"rm {m.jobs}/*.json")
        equal(m.list(), [], "after rm")
