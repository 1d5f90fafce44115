"""Reading: sizes are true, texts are whole (K04); a wait holds nothing up and can be left (K05)."""

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import termios
import threading
import time

from harness import (DELAY, LONG_REQUEST, SLOW, Mount, equal, errno_of, need, ok, read, run, took,
                     until)

TEXT = "a text to be read back in many ways\n"
STREAMED = json.dumps({"prompt": "s" * 300, "stream": True})


def finished(m):
    """A job that is done, with TEXT as its output."""
    m.put("s.txt", TEXT)
    m.done("s")
    return m.job("s.out")


def spliced(path):
    """The bytes that splice(2) moves into a pipe."""
    r, w = os.pipe()
    with open(path, "rb") as f:
        os.splice(f.fileno(), w, 65536)
    os.close(w)
    with os.fdopen(r, "rb") as out:
        return out.read()


def sent(path, to):
    """The bytes that sendfile(2) copies."""
    with open(path, "rb") as f, open(to, "wb") as out:
        os.sendfile(out.fileno(), f.fileno(), 0, 65536)
    return read(to).encode()


def ranged(path, to):
    """The bytes that copy_file_range(2) copies within the mount."""
    with open(path, "rb") as f, open(to, "wb") as out:
        os.copy_file_range(f.fileno(), out.fileno(), 65536)
    return read(to).encode()


def test_size__zero_copy_readers__all_bytes():
    """sendfile, splice and copies go by st_size (K04-01)."""
    with Mount() as m:
        out, want = finished(m), TEXT.encode()
        for name in ("s.out", "s.status", "s.txt"):
            text = read(m.job(name)).encode()
            equal(spliced(m.job(name)), text, f"splice {name}")
            equal(sent(m.job(name), m.dir + "/copy"), text, f"sendfile {name}")
            equal(ranged(m.job(name), m.job("copy.bin")), text, f"copy_file_range {name}")
        need("busybox")
        for command in ("cat", "busybox cat", "head -c 100", "tail -n 5", "dd status=none if="):
            space = "" if command.endswith("=") else " "
            equal(ok(f"{command}{space}{out}").encode(), want, command)


def test_size__finished_and_fixed_texts__as_many_bytes_as_read():
    """Programs that allocate by st_size see everything (K04-02)."""
    with Mount() as m:
        finished(m)
        m.send("bad.json", "{]")
        m.done("bad")
        fixed = ["README", "manifests/echo.json", "models/echo/schema",
                 "models/echo/example.json", "models/echo/limits", "models/echo/state"]
        names = ["jobs/" + n for n in ("s.out", "s.status", "s.txt", "bad.err", "bad.status")]
        for name in names + fixed:
            path = os.path.join(m.path, name)
            equal(os.stat(path).st_size, len(read(path).encode()), name)
        equal(run(["test", "-s", m.job("s.out")]).returncode, 0, "test -s")
        equal(ok(f"wc -c < {m.job('s.out')}").strip(), str(len(TEXT)), "wc -c")
        for name in ("health", "metrics", "version", "capabilities"):
            assert len(read(os.path.join(m.path, name))) > 50, name


def test_small_reads__metrics__one_text_whatever_the_buffer():
    """Rendered once per open, served by offset (K04-05)."""
    with Mount() as m:
        finished(m)
        for bs in (1, 7, 100, 4096):
            text = ok(f"dd status=none bs={bs} if={m.path}/metrics")
            assert text.endswith("\n"), text[-80:]
            for line in text.splitlines():
                assert line.startswith("# ") or len(line.split(" ")) == 2, line
            health = ok(f"dd status=none bs={bs} if={m.path}/health")
            equal(health.split("\n")[0], "ready", "health")
            capabilities = ok(f"dd status=none bs={bs} if={m.path}/capabilities")
            equal(capabilities, read(m.path + "/capabilities"), "capabilities")


def test_status__each_change__new_size_and_time():
    """Those who poll size and mtime see every state (K04-10)."""
    seen = []
    with Mount("sim_delay=50ms", "max_active=1") as m:
        m.put("first.txt", "12345")
        m.put("f.txt", "12345")
        while not seen or seen[-1][0] != "done":
            state = m.state("f")
            entry = state, os.stat(m.job("f.status")).st_mtime_ns
            if entry not in seen and m.state("f") == state:
                seen.append(entry)
            time.sleep(0.02)
        equal([s for s, _ in seen], ["queued", "running", "done"], "states")
        equal(len({t for _, t in seen}), 3, f"times {seen}")


def test_status__tail_follows__shows_the_end_and_can_be_killed():
    """tail -f sees the status grow and calls nothing truncated while nothing changes (K04-10)."""
    with Mount(DELAY) as m:
        m.put("f.json", LONG_REQUEST)
        m.runs("f")
        tail = subprocess.Popen(["tail", "-s", "0.1", "-n", "+1", "-f", m.job("f.status")],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        equal(tail.stdout.readline(), "state: running\n", "first line")
        time.sleep(1)
        tail.terminate()
        _, errors = tail.communicate(timeout=5 * SLOW)
        equal((tail.returncode, errors), (-signal.SIGTERM, ""), "tail")


def test_request__read_right_after_close__all_there():
    """No cache lags behind (K04-12)."""
    with Mount() as m:
        for i in range(100):
            text = '{"prompt":"request %d"}' % i
            m.put(f"n{i}.json", text)
            equal(read(m.job(f"n{i}.json")), text, "request")


def test_ioctl__terminal_probes__not_a_terminal():
    """Runtimes probe every file (K04-13)."""
    with Mount() as m:
        out = finished(m)
        for path in (out, m.job("s.txt"), m.path + "/health", m.path + "/capabilities"):
            fd = os.open(path, os.O_RDONLY)
            equal(os.isatty(fd), False, path)
            equal(errno_of(fcntl.ioctl, fd, termios.TIOCGWINSZ, b"\0" * 8), errno.ENOTTY, path)
            os.close(fd)
        m.put("code.txt", "print('ran')")
        m.done("code")
        equal(ok(["python3", m.job("code.out")]), "ran\n", "a script as output")


# --- waiting -------------------------------------------------------------------------------


def test_waiting__sixty_four_readers__the_mount_answers_at_once():
    """A wait costs no thread; kill ends it (K05-01)."""
    with Mount(DELAY) as m:
        m.put("z.json", LONG_REQUEST)
        cats = [subprocess.Popen(["cat", m.job("z.out")], stdout=subprocess.DEVNULL)
                for _ in range(64)]
        until(lambda: m.metric("npufs_parked_requests") == 64, 10, "64 wait")
        for command in (["ls", m.jobs], ["cat", m.path + "/health"], ["df", m.path]):
            with took(1, command[0]):
                ok(command)
        with took(1, "killing them"):
            for cat in cats:
                cat.kill()
            for cat in cats:
                cat.wait(5 * SLOW)
        equal(m.state("z"), "running", "the job")
        until(lambda: m.metric("npufs_parked_requests") == 0, 5, "none waits")


def test_waiting__three_hundred_threads__no_more_threads_in_the_daemon():
    """All of them are answered when the request is removed (K05-01)."""
    got = []

    def reader(path):
        got.append(errno_of(read, path))

    with Mount(DELAY) as m:
        m.put("z.json", LONG_REQUEST)
        m.runs("z")
        before = len(os.listdir(f"/proc/{m.pid}/task"))
        threads = [threading.Thread(target=reader, args=(m.job("z.out"),)) for _ in range(300)]
        for t in threads:
            t.start()
        until(lambda: m.metric("npufs_parked_requests") == 300, 10, "300 wait")
        equal(len(os.listdir(f"/proc/{m.pid}/task")), before, "threads")
        os.unlink(m.job("z.json"))
        for t in threads:
            t.join(10 * SLOW)
        equal(got, [errno.ECANCELED] * 300, "errors")


def test_waiting__reader_interrupted__job_goes_on():
    """A signal ends the reader alone (K05-03, K05-05)."""
    with Mount("sim_delay=30ms") as m:
        m.put("i.txt", "t" * 50)
        for signal_name in ("TERM", "INT", "KILL"):
            with took(0.9, signal_name):
                r = run(["timeout", "-s", signal_name, "0.2", "cat", m.job("i.out")])
            assert r.returncode in (124, 137, -9), r
        equal(m.state("i"), "running", "the job")
        equal(m.out("i"), "t" * 50 + "\n", "a later reader")


def test_waiting__signal_with_a_handler__eintr():
    """Who handles a signal meanwhile gets what any slow read gives."""
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        fd = os.open(m.job("a.out"), os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        got = libc.read(fd, ctypes.create_string_buffer(10), 10)
        equal((got, ctypes.get_errno()), (-1, errno.EINTR))
        os.close(fd)
        equal(m.state("a"), "running", "the job")
        os.unlink(m.job("a.json"))


def test_cancel__request_removed__device_free_for_the_next():
    """What is cancelled leaves the device (K05-07)."""
    with Mount("sim_delay=20ms") as m:
        for i in range(50):
            m.put("x.json", LONG_REQUEST)
            if i % 2:
                m.runs("x")
            os.unlink(m.job("x.json"))
        until(lambda: m.metric("npufs_jobs_running") == 0, 2, "nothing runs")
        with took(1, "the next job"):
            m.put("y.json")
            equal(m.out("y"), "x\n", "output")
        equal(m.list(), ["y.json", "y.out", "y.status"], "left")


def test_nonblock__job_runs__eagain_then_the_data():
    """O_NONBLOCK asks without waiting (K05-08)."""
    with Mount("sim_delay=30ms") as m:
        m.put("nb.txt", "t" * 30)
        fd = os.open(m.job("nb.out"), os.O_RDONLY | os.O_NONBLOCK)
        with took(0.5, "not waiting"):
            equal(errno_of(os.read, fd, 100), errno.EAGAIN, "at once")
        r = run(["dd", "if=" + m.job("nb.out"), "iflag=nonblock", "bs=100", "count=1"])
        assert r.returncode == 1 and "unavailable" in r.stderr, r
        m.done("nb")
        equal(os.read(fd, 100), b"t" * 30 + b"\n", "after the end")
        os.close(fd)


def test_poll__job_runs__ready_at_its_end():
    """poll(2) waits for a result as read(2) does."""
    with Mount("sim_delay=30ms") as m:
        m.put("p.txt", "t" * 30)
        with open(m.job("p.out"), "rb", buffering=0) as f:
            poller = select.poll()
            poller.register(f, select.POLLIN)
            equal(poller.poll(0), [], "at once")
            equal(len(poller.poll(10000 * SLOW)), 1, "at the end")
            equal(m.state("p"), "done", "the job")
            equal(select.select([f], [], [], 0)[0], [f], "select")
            equal(f.read(), b"t" * 30 + b"\n", "data")


def test_stream__job_runs__text_as_it_is_made():
    """.stream gives pieces before the end, and all of the text."""
    with Mount("sim_delay=30ms") as m:
        m.put("s.json", json.dumps({"prompt": "t" * 30, "stream": True}))
        m.put("quiet.txt", "t")
        with open(m.job("s.stream"), "rb", buffering=0) as f:
            first = f.read(100)
            equal(m.state("s"), "running", "after the first piece")
            assert "s.stream" in m.list() and "quiet.stream" not in m.list()
            equal(first + f.readall(), b"t" * 30 + b"\n", "the text")
        equal(read(m.job("quiet.stream")), "t\n", "a stream nobody asked for")


def test_stream__polled_without_waiting__ready_for_each_new_piece():
    """poll(2) and O_NONBLOCK together: no piece is missed, none is announced twice."""
    got, spurious = b"", 0
    with Mount("sim_delay=50ms") as m:
        m.put("s.txt", "t" * 20)
        fd = os.open(m.job("s.stream"), os.O_RDONLY | os.O_NONBLOCK)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        while not got.endswith(b"\n"):
            equal(len(poller.poll(5000 * SLOW)), 1, "ready")
            try:
                got += os.read(fd, 100)
            except BlockingIOError:
                spurious += 1
        equal((got, spurious <= 2), (b"t" * 20 + b"\n", True), f"{spurious} times for nothing")
        os.close(fd)


def test_listing__output__only_when_it_is_complete():
    """`ls *.out` and `test -e` poll; nobody reads half a result."""
    with Mount(DELAY) as m:
        m.put("a.json", STREAMED)
        m.runs("a")
        equal(m.list(), ["a.json", "a.status", "a.stream"], "while it runs")
        equal(os.stat(m.job("a.out")).st_size, 0, "size")


def stop_with_readers(m):
    """SIGTERM with three waiting readers; their outputs."""
    cats = [subprocess.Popen(["cat", m.job(name)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
            for name in ("t.out", "t.stream", "empty.out")]
    until(lambda: m.metric("npufs_parked_requests") >= 2, 10, "they wait")
    with took(5, "the stop"):
        m.stop()
    return [cat.communicate(timeout=5 * SLOW)[1] for cat in cats]


def test_stop__readers_wait__all_answered_and_unmounted():
    """Nobody hangs on a daemon that ends (K05-12)."""
    with Mount(DELAY) as m:
        m.put("t.json", LONG_REQUEST)
        m.runs("t")
        m.put("empty.json", "")
        for errors in stop_with_readers(m):
            assert "shutdown" in errors or "not connected" in errors or "aborted" in errors, errors
        equal(os.path.ismount(m.path), False, "mounted")


def test_poll__after_a_parked_read__silent_until_there_is_more():
    """What was read is not announced again."""
    with Mount("sim_delay=300ms") as m:
        m.put("a.json", json.dumps({"prompt": "abcdef", "stream": True}))
        fd = os.open(m.job("a.stream"), os.O_RDONLY)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert os.read(fd, 100)
        equal(poll.poll(0), [])
        equal([x[1] for x in poll.poll(5000)], [select.POLLIN])
        os.close(fd)


def test_stream__a_thousand_open__each_gets_all_of_it():
    """Streams cost neither a thread nor each other's pieces."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Mount("sim_delay=50ms") as m:
        m.put("s.json", '{"prompt":"' + "s" * 30 + '","stream":true}')
        got = {os.open(m.job("s.stream"), os.O_RDONLY | os.O_NONBLOCK): b"" for _ in range(1000)}
        poller = select.poll()
        for fd in got:
            poller.register(fd, select.POLLIN)
        left = set(got)
        end = time.monotonic() + 30 * SLOW
        while left and time.monotonic() < end:
            for fd, _ in poller.poll(1000):
                try:
                    piece = os.read(fd, 4096)
                except BlockingIOError:
                    continue
                got[fd] += piece
                if not piece:
                    left.discard(fd)
                    poller.unregister(fd)
        equal(len(left), 0, "ended")
        equal(set(got.values()), {b"s" * 30 + b"\n"})
        for fd in got:
            os.close(fd)
