"""Everything a user can grow has a limit and a clear refusal (K13)."""

import errno
import json
import os
import time

from harness import (DELAY, LONG_REQUEST, U1, U2, Mount, as_user, equal, errno_of, need_root, ok,
                     run, took, until)


def test_queue__full__create_says_try_again():
    """A shell sees it at the redirection."""
    with Mount(DELAY, "max_active=1", "queue=2") as m:
        m.put("run.json", LONG_REQUEST)
        m.runs("run")
        m.put("q1.txt", "1")
        m.put("q2.txt", "2")
        r = run(f"echo late > {m.job('late.txt')}")
        assert r.returncode != 0 and "unavailable" in r.stderr, r
        equal(os.path.exists(m.job("late.txt")), False, "the refused request")
        equal(m.status("q2")["position"], "2", "place in the queue")
        m.put("late.tmp", "inert files are welcome")
        equal(errno_of(os.rename, m.job("late.tmp"), m.job("late.txt")), errno.EAGAIN, "rename")
        os.unlink(m.job("q1.txt"))
        m.put("late.txt", "now")
        os.unlink(m.job("run.json"))
        equal(m.out("late"), "now\n", "after there was room")


def test_share__one_user_full__edquot_and_others_go_on():
    """A user's share is the user's."""
    need_root()
    with Mount(DELAY, "max_active=1", "user_queue=2") as m:
        as_user(U1, m.put, "run.json", LONG_REQUEST)
        m.runs("run")
        for name in ("a.txt", "b.txt"):
            as_user(U1, m.put, name, "x")
        equal(as_user(U1, m.send, "c.txt", "x"), errno.EDQUOT, "the third")
        as_user(U2, m.put, "d.txt", "x")
        equal(m.state("d"), "queued", "another user's")


def test_fairness__crowd_of_one_user__the_other_is_not_last():
    """The queue is fair by user."""
    need_root()
    with Mount("sim_delay=50ms", "max_active=1") as m:
        as_user(U1, lambda: [m.put(f"crowd{i}.txt", "x") for i in range(30)])
        as_user(U2, m.put, "one.txt", "y")
        equal(as_user(U2, m.out, "one"), "y\n", "output")
        waiting = [i for i in range(30) if m.state(f"crowd{i}") == "queued"]
        assert len(waiting) > 15, waiting


def test_files__limit_reached__enospc_and_room_after_rm():
    """Files and folders are counted."""
    with Mount("max_files=5") as m:
        for i in range(5):
            m.put(f"f{i}.bin", "x")
        equal(m.send("f5.bin", "x"), errno.ENOSPC, "a file")
        equal(m.send("f5.json", "{}"), errno.ENOSPC, "a request")
        equal(errno_of(os.mkdir, m.job("d")), errno.ENOSPC, "a folder")
        equal(os.statvfs(m.jobs).f_ffree, 0, "free inodes")
        os.unlink(m.job("f0.bin"))
        m.put("f5.txt", "x")
        equal(m.out("f5"), "x\n", "after rm")


def test_bytes__limit_reached__enospc_no_job_and_room_after_rm():
    """A cut file runs nothing; others are not touched (K13-01)."""
    with Mount("max_bytes=2M", "request_size=4M") as m:
        m.put("small.txt", "small")
        r = run(f"dd if=/dev/zero bs=1M count=4 of={m.job('fu.bin')}")
        assert r.returncode == 1 and "No space left" in r.stderr, r
        r = run(f"head -c 3000000 /dev/zero | tr '\\0' a > {m.job('fu.txt')}")
        assert "No space left" in r.stderr, r
        equal(m.send("fu2.json", " " * 1200000), errno.ENOSPC, "write")
        equal(m.out("small"), "small\n", "another job")
        ok(f"rm {m.job('fu.bin')} {m.job('fu.txt')}")
        m.put("fu3.txt", "after")
        equal(m.out("fu3"), "after\n", "after rm")


def test_output__past_its_limit__failed_and_said():
    """An output too large fails its job alone."""
    with Mount("output_size=1k") as m:
        m.put("big.txt", "b" * 1500)
        m.put("small.txt", "s")
        equal(m.done("big")["error"], "27 EFBIG", "status")
        equal(errno_of(m.out, "big"), errno.EFBIG, ".out")
        equal(m.out("small"), "s\n", "another")


def test_prompt__past_the_context__failed_with_field():
    """A prompt the model cannot take fails its job."""
    with Mount() as m:
        m.put("long.txt", "l" * 5000)
        equal(m.done("long")["error"], "7 E2BIG", "status")
        equal(m.err("long")["field"], "prompt", "field")


def test_deadline__runs_or_waits__expired_on_time():
    """deadline_ms covers queue and run."""
    request = json.dumps({"prompt": "d" * 300, "deadline_ms": 600})
    with Mount(DELAY, "max_active=1") as m:
        m.put("run.json", request)
        m.put("wait.json", request)
        start = time.monotonic()
        for stem in ("run", "wait"):
            with took(2, stem):
                equal(errno_of(m.out, stem), errno.ETIMEDOUT, stem)
            equal(m.status(stem)["state"], "expired", stem)
        assert time.monotonic() - start > 0.4, "too early"
        equal(m.err("run")["error"], "110 ETIMEDOUT", ".err")
        m.put("next.txt", "n")
        equal(m.out("next"), "n\n", "the device is free")


def test_priority__larger_number__runs_first():
    """Of one user's jobs the important ones go first."""
    with Mount(DELAY, "max_active=1") as m:
        m.put("run.txt", "123456")
        m.runs("run")
        m.put("low.json", json.dumps({"prompt": "l", "priority": -5}))
        m.put("high.json", json.dumps({"prompt": "h", "priority": 5}))
        equal(m.status("high")["position"], "1", "position")
        m.done("low")
        assert m.done("high")["started"] < m.done("low")["started"]


def test_long_job__short_job_beside_it__not_stuck():
    """Jobs are interleaved on the device."""
    with Mount("sim_delay=10ms") as m:
        m.put("long.json", LONG_REQUEST)
        m.runs("long")
        with took(2, "the short one"):
            m.put("short.txt", "abc")
            equal(m.out("short"), "abc\n", "output")
        equal(m.state("long"), "running", "the long one")
        os.unlink(m.job("long.json"))
        until(lambda: m.metric("npufs_jobs_running") == 0, 5, "none runs")


def test_cut_request__too_large_or_no_room__fails_and_does_not_run():
    """A write that failed spoils the request, whoever looks at it."""
    cases = (("request_size=1k", 27, "EFBIG"), ("max_bytes=1M,request_size=4M", 28, "ENOSPC"))
    for options, number, name in cases:
        with Mount(*options.split(",")) as m:
            text = b"0123456789abcdef" * 131072
            fd = os.open(m.job("a.txt"), os.O_CREAT | os.O_WRONLY)
            refused = 0
            for at in range(0, len(text), 512):
                refused = errno_of(os.write, fd, text[at:at + 512]) or refused
            equal(errno_of(os.close, fd), number, "close says it again")
            equal(refused, number, options)
            equal(m.done("a")["error"], f"{number} {name}", options)
            equal(m.started(), 0)
            m.put("a.txt", "short")
            equal(m.out("a"), "short\n")


def test_open_results__request_removed__its_bytes_are_not_kept():
    """An open result holds what it shows, not the request it came from."""
    with Mount("max_bytes=16M", "max_files=10") as m:
        def resident():
            with open(f"/proc/{m.pid}/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * 4
        text = '{"prompt":"x"}' + " " * (3 << 20)
        before, held = resident(), []
        for _ in range(60):
            m.put("a.json", text)
            held.append(os.open(m.job("a.out"), os.O_RDONLY))
            equal(os.read(held[-1], 10), b"x\n")
            os.unlink(m.job("a.json"))
        grown = resident() - before
        for fd in held:
            os.close(fd)
        if "/san-" not in m.program:  # a sanitizer keeps freed memory
            assert grown < 40 << 10, f"{grown} KiB"
