"""Two at one name: never a mix, never a run too many (K19)."""

import errno
import json
import os
import random
import threading

from harness import DELAY, LONG_REQUEST, SLOW, Mount, equal, errno_of, read

SIZE = 48 * 1024


def slow_writer(path, letter, successes, barrier):
    """Write a request of one letter in pieces; note it when every call went well."""
    text = json.dumps({"prompt": letter * SIZE, "max_new_tokens": 1}).encode()
    barrier.wait()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as e:
        assert e.errno == errno.EBUSY, e
        return
    try:
        for i in range(0, len(text), 4096):
            os.write(fd, text[i:i + 4096])
            if random.random() < 0.2:
                os.sched_yield()
        successes.append(letter)
    finally:
        os.close(fd)


def one_round(m):
    """Two writers at once: the content is one's, runs are at most the winners'."""
    before, successes, barrier = m.metric("npufs_jobs_accepted_total"), [], threading.Barrier(2)
    writers = [threading.Thread(target=slow_writer, args=(m.job("ww.json"), x, successes, barrier))
               for x in "AB"]
    for w in writers:
        w.start()
    for w in writers:
        w.join(20 * SLOW)
    m.done("ww")
    letters = set(read(m.job("ww.json"))) & {"A", "B"}
    equal(len(letters), 1, "letters in the request")
    assert letters <= set(successes), (letters, successes)
    assert m.metric("npufs_jobs_accepted_total") - before <= len(successes), successes
    os.unlink(m.job("ww.json"))


def test_two_writers__fifty_rounds__one_text_or_the_other():
    """The second is refused while the first writes (K19-01)."""
    random.seed(19)
    with Mount() as m:
        for _ in range(50):
            one_round(m)


def test_second_writer__first_has_it_open__busy():
    """EBUSY for whoever comes second, by whatever call (K19-01)."""
    with Mount() as m:
        fd = os.open(m.job("w.txt"), os.O_WRONLY | os.O_CREAT, 0o600)
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_CREAT,
                      os.O_WRONLY | os.O_APPEND):
            equal(errno_of(os.open, m.job("w.txt"), flags), errno.EBUSY, oct(flags))
        equal(errno_of(os.truncate, m.job("w.txt"), 0), errno.EBUSY, "truncate")
        m.put("other", "x")
        equal(errno_of(os.rename, m.job("other"), m.job("w.txt")), errno.EBUSY, "rename")
        os.write(fd, b"first")
        equal(read(m.job("w.txt")), "first", "a reader")
        os.close(fd)
        equal((m.out("w"), m.started()), ("first\n", 1), "run")


def test_overwrite__job_runs__busy_and_same_generation():
    """What runs is not replaced; .out and .status are one run's (K19-02)."""
    with Mount("sim_delay=20ms") as m:
        m.put("ov.txt", "o" * 30)
        m.runs("ov")
        number = m.status("ov")["job"]
        for mode in ("w", "a", "r+"):
            equal(errno_of(open, m.job("ov.txt"), mode), errno.EBUSY, mode)
        equal(errno_of(os.truncate, m.job("ov.txt"), 0), errno.EBUSY, "truncate")
        equal(m.out("ov"), "o" * 30 + "\n", "output")
        equal(m.status("ov")["job"], number, "job number")
        m.put("ov.txt", "next")
        equal(m.out("ov"), "next\n", "the next run")
        assert int(m.status("ov")["job"]) > int(number)


def test_overwrite__job_waits_in_the_queue__busy():
    """Queued is as good as running (K19-02)."""
    with Mount(DELAY, "max_active=1") as m:
        m.put("run.json", LONG_REQUEST)
        m.put("q.txt", "queued")
        equal(m.send("q.txt", "changed"), errno.EBUSY, "overwriting")
        equal(read(m.job("q.txt")), "queued", "the request")
        os.unlink(m.job("run.json"))
        equal(m.out("q"), "queued\n", "output")


def user(m, i, failures):
    """One of many users: write, wait, compare, remove; again."""
    for n in range(15):
        name, text = f"u{i}-{n}", f"user {i} round {n}"
        try:
            m.put(name + ".txt", text)
            equal(m.out(name), text + "\n", name)
            os.unlink(m.job(name + ".txt"))
        except (OSError, AssertionError) as e:
            failures.append(f"{name}: {e}")


def test_many_users__at_once__each_gets_its_own():
    """Nobody gets another's answer."""
    failures = []
    with Mount() as m:
        threads = [threading.Thread(target=user, args=(m, i, failures)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(50 * SLOW)
        equal(failures, [], "failures")
        equal((m.list(), m.started()), ([], 240), "left, runs")
