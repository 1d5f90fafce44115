"""A failure is never read as a result; results belong to their run (K15)."""

import errno
import json
import os
import re
import time

from harness import (DELAY, LONG_REQUEST, Mount, equal, errno_of, ok, read, run, took, until,
                     write)


def test_failure__unknown_model__errno_at_out_and_story_in_err():
    """.out gives the job's errno, never text (K15-01)."""
    with Mount() as m:
        equal(m.send("um.json", '{"model":"nope","prompt":"x"}'), errno.ENOENT, "write")
        r = run(["cat", m.job("um.out")])
        equal((r.returncode, r.stdout), (1, ""), "cat")
        equal(errno_of(m.out, "um"), errno.ENOENT, "reading .out")
        lines = read(m.job("um.status")).splitlines()
        equal(lines[:2], ["state: failed", "error: 2 ENOENT"], "status")
        equal(m.err("um")["field"], "model", ".err")
        assert "nope" in m.err("um")["reason"] and "models/" in m.err("um")["action"]
        equal(m.list(), ["um.err", "um.json", "um.status"], "listed")
        assert "done" not in read(m.job("um.status"))
        equal(os.stat(m.job("um.out")).st_size, 0, "size of .out")


def test_failure__reader_waited__same_errno_and_no_text():
    """Who waits learns it like who comes later (K15-01)."""
    with Mount("output_size=1k", "sim_delay=1ms") as m:
        m.put("f.txt", "f" * 1100)
        equal(errno_of(m.out, "f"), errno.EFBIG, "the waiting reader")
        equal(errno_of(m.out, "f"), errno.EFBIG, "a later one")


def test_failure__then_corrected__error_gone():
    """A good text clears the failure of the bad one."""
    with Mount() as m:
        m.send("c.json", "{]")
        m.done("c")
        m.put("c.json")
        equal(m.out("c"), "x\n", "output")
        equal(m.list(), ["c.json", "c.out", "c.status"], "listed")
        equal("error" in m.status("c"), False, "status")


def test_success__err__exists_empty_or_not_at_all():
    """Of a job that ended well .err has nothing to say."""
    with Mount() as m:
        m.put("g.txt", "text")
        m.done("g")
        assert "g.err" not in m.list()
        try:
            equal(read(m.job("g.err")), "", ".err")
        except FileNotFoundError:
            pass


def test_status__done_job__every_field():
    """Times, tokens, digests."""
    with Mount() as m:
        m.put("s.json", json.dumps({"prompt": "four", "seed": 7, "request_id": "r-1"}))
        s = m.done("s")
        digest = run(["sha256sum", m.job("s.json"), m.job("s.out")]).stdout.split()
        equal((s["request_sha256"], s["output_sha256"]), (digest[0], digest[2]), "digests")
        equal((s["prompt_tokens"], s["output_tokens"]), ("5", "4"), "tokens")
        equal((s["model"], s["generation"], s["seed"]), ("echo", "1", "7"), "model and seed")
        equal((s["finish_reason"], s["request_id"]), ("stop", "r-1"), "reason and id")
        for key in ("created", "queued", "started", "ended"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", s[key]), s[key]
        assert s["created"] <= s["queued"] <= s["started"] <= s["ended"], s


def test_durations__all_jobs__never_negative_and_as_long_as_they_were():
    """Durations come from the monotonic clock (K15-04)."""
    with Mount("sim_delay=20ms") as m:
        m.put("d.txt", "d" * 20)
        s = m.done("d")
        assert 0 <= float(s["queue_seconds"]) < 1, s
        assert 0.3 < float(s["run_seconds"]) < 10, s
        for name in ("queue_seconds_total", "job_seconds_total", "uptime_seconds"):
            assert m.metric("npufs_" + name) >= 0, name
        assert m.metric("npufs_job_seconds_total") > 0.3


class SteppedClock(Mount):
    """A daemon whose wall clock the test sets back and on."""

    def __init__(self, *options):
        super().__init__(*options, preload="clock_step.c")
        self.step_file = self.env["CLOCK_STEP"] = self.dir + "/step"
        self.step(0)

    def step(self, seconds):
        """From now on the daemon's clock is off by so much."""
        write(self.step_file, str(seconds))


def test_clock__stepped_back_and_on__durations_and_deadlines_hold():
    """Wall times are for display; waits and durations do not follow them (K15-04)."""
    with SteppedClock("sim_delay=20ms") as m:
        m.put("long.json", json.dumps({"prompt": "l" * 60, "deadline_ms": 30000}))
        m.runs("long")
        m.step(-3600)
        with took(3, "a deadline after the step back"):
            m.put("late.json", json.dumps({"prompt": "s" * 300, "deadline_ms": 500}))
            equal(m.done("late")["state"], "expired", "the deadline passes")
        m.step(7200)
        m.put("kept.json", json.dumps({"prompt": "kept", "deadline_ms": 30000}))
        equal((m.out("kept"), m.out("long")), ("kept\n", "l" * 60 + "\n"), "outputs")
        for stem in ("long", "late", "kept"):
            s = m.status(stem)
            assert 0 <= float(s["queue_seconds"]) < 5 and 0 <= float(s["run_seconds"]) < 10, s
        assert m.status("late")["created"] < m.status("long")["created"], "the clock was stepped"
        for name in ("queue_seconds_total", "job_seconds_total", "uptime_seconds"):
            assert 0 <= m.metric("npufs_" + name) < 30, name


def test_clock__stepped__sessions_are_freed_by_time_that_passed():
    """session_idle follows no wall clock, and reading is no use of a session (K15-04)."""
    with SteppedClock("session_idle=3s") as m:
        path = m.path + "/sessions/s"
        os.mkdir(path)
        begun = time.monotonic()
        for step in (7200, -3600):
            m.step(step)
            time.sleep(0.7)
            equal(read(path + "/state"), "idle\n", f"after a step by {step}")
        until(lambda: errno_of(read, path + "/length") == errno.ENOENT, 10, "freed")
        assert time.monotonic() - begun > 2.9, "too early"


def test_cancelled__result_never_appears():
    """rm asks at once; the old readers get ECANCELED, a new request its own run."""
    with Mount(DELAY) as m:
        m.put("c.json", LONG_REQUEST)
        m.runs("c")
        fd = os.open(m.job("c.out"), os.O_RDONLY)
        os.unlink(m.job("c.json"))
        equal(errno_of(os.read, fd, 100), errno.ECANCELED, "an open descriptor")
        os.close(fd)
        equal(errno_of(os.stat, m.job("c.out")), errno.ENOENT, "the name")
        m.put("c.txt", "new")
        equal(m.out("c"), "new\n", "a new request of that stem")


def test_removed__open_results__can_be_read_to_the_end():
    """Removing a finished request takes the names away, not what is open."""
    with Mount() as m:
        m.put("r.txt", "text")
        m.done("r")
        opened = [os.open(m.job("r." + s), os.O_RDONLY) for s in ("out", "status")]
        sizes = [os.fstat(fd).st_size for fd in opened]
        os.unlink(m.job("r.txt"))
        equal([os.fstat(fd).st_size for fd in opened], sizes, "sizes")
        equal(os.read(opened[0], 100), b"text\n", "output")
        equal(len(os.read(opened[1], 4096)), sizes[1], "status")
        for fd in opened:
            os.close(fd)


def test_result__descriptor_closed__no_request_of_its_own():
    """What was only read has nothing to say at its close: only the last one is told."""
    with Mount() as m:
        m.put("r.txt", "text")
        m.done("r")
        fds = [os.open(m.job("r." + s), os.O_RDONLY) for s in ("out", "status")]
        copies = [os.dup(fd) for fd in fds for _ in range(100)]
        before = m.metric("npufs_fuse_requests_total")
        for fd in copies:
            os.close(fd)
        assert m.metric("npufs_fuse_requests_total") - before < 100, "closes are requests"
        for fd in fds:
            os.close(fd)


def test_success__err__has_no_name_once_done():
    """`test -e STEM.err` tells a script what `ls` shows."""
    with Mount() as m:
        m.put("a.json")
        m.out("a")
        assert not os.path.exists(m.job("a.err"))
        m.send("b.json", "{")
        assert os.path.exists(m.job("b.err"))
