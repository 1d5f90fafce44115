"""When a request runs: on the last close after a write, never before, and once (K01, K02, K03)."""

import errno
import hashlib
import os
import subprocess
import time

from harness import (DELAY, LONG_REQUEST, REQUEST, SLOW, U1, Mount, as_user, equal, errno_of, need,
                     need_root, ok, read, run, sh_as, write)

# Ways in which shells write: one builtin, a group, a subshell, children that inherit and close.
WRITERS = (
    "printf '{\"prompt\":\"x\"}' > $F",
    "{ printf '{\"prompt\":'; printf '\"x\"}'; } > $F",
    "( printf '{\"prompt\":'; sleep 0.1; printf '\"x\"}' ) > $F",
    "{ /bin/echo '{\"prompt\":'; sleep 0.1; /bin/echo '\"x\"}'; } > $F",
    "printf '{\"prompt\":\"x\"}' | cat > $F",
    "printf '{\"prompt\":\"x\"}' | tee $F > /dev/null",
    "printf '{\"prompt\":\"x\"}' | dd of=$F bs=1 2>/dev/null",
    "exec 5> $F; printf '{\"prompt\":\"x\"}' >&5; exec 5>&-",
)


def one_run(m, shell, number, line):
    """One way of writing: no error, one run, the right answer."""
    before, stem = m.started(), f"{os.path.basename(shell[0])}{number}"
    r = subprocess.run(
        [*shell, "-c", line], env={**os.environ, "F": m.job(stem + ".json")}, check=False,
        capture_output=True, text=True, timeout=20 * SLOW)
    equal((r.returncode, r.stderr), (0, ""), line)
    equal(m.out(stem), "x\n", line)
    equal(m.started() - before, 1, f"runs after {shell}: {line}")
    equal(m.status(stem)["state"], "done", line)


def test_submit_on_close__dash_and_bash__one_run():
    """Shells flush before and between writes; that starts nothing (K01-01)."""
    with Mount() as m:
        for shell in (["bash"], ["dash"], ["busybox", "sh"]):
            need(shell[0])
            for number, line in enumerate(WRITERS):
                one_run(m, shell, number, line)
        equal(read(m.job("bash0.json")), REQUEST, "the request")


def test_submit_on_close__results_opened_at_once__there_and_whole():
    """Whoever looks right after close finds the results (K01-03)."""
    with Mount() as m:
        for i in range(500):
            m.put(f"r{i}.json", '{"prompt":"number %d"}' % i)
            os.stat(m.job(f"r{i}.out"))
            assert m.state(f"r{i}") in ("writing", "queued", "running", "done")
            equal(m.out(f"r{i}"), f"number {i}\n", "output")


def test_submit_on_close__user__owner_everywhere():
    """Release comes without credentials; the job is its creator's (K01-05)."""
    with Mount() as m:
        as_user(U1, m.put, "own.json")
        equal(m.done("own")["uid"], str(U1), "status")
        for suffix in ("json", "out", "status"):
            st = os.stat(m.job("own." + suffix))
            equal((st.st_uid, st.st_gid), (U1, U1), suffix)


def test_submit_on_close__root_writes_a_users_request__still_the_users():
    """The owner is the file's, not the writer's (K01-05)."""
    with Mount() as m:
        as_user(U1, m.put, "a.txt", "one")
        m.done("a")
        write(m.job("a.txt"), "two", "r+")
        equal(m.done("a")["uid"], str(U1), "status")
        equal(m.out("a"), "two\n", "output")


def test_submit_on_close__given_away_before__the_new_owners():
    """As `install -o` and tar do: what runs is whose file it is at its end, and so is its session."""
    need_root()
    with Mount() as m:
        fd = os.open(m.job("a.json"), os.O_CREAT | os.O_WRONLY)
        os.write(fd, b'{"prompt":"x","session":"s"}')
        os.fchown(fd, U1, U1)
        os.close(fd)
        equal(m.done("a")["uid"], str(U1), "status")
        equal(read(m.path + "/sessions/s/owner").splitlines()[0], f"uid: {U1}", "session")
        write(m.job("b.txt"), "")
        os.chown(m.job("b.txt"), U1, U1)
        as_user(U1, m.put, "b.txt", "x")
        equal(m.done("b")["uid"], str(U1), "status of what was made empty")


def test_submit_on_close__bad_request__said_by_every_file():
    """Most programs do not look at close: .status and .err tell (K01-07)."""
    with Mount() as m:
        run(f"echo '{{\"model\":' > {m.job('bad.json')}")
        equal(run(f"printf '{{' | cp /dev/stdin {m.job('bad2.json')}").returncode, 1, "cp")
        for stem, offset in (("bad", 10), ("bad2", 1)):
            s = m.done(stem)
            equal((s["state"], s["error"]), ("failed", "22 EINVAL"), stem)
            equal(m.err(stem)["offset"], str(offset), stem)
            equal(errno_of(m.out, stem), errno.EINVAL, "reading .out")
            assert stem + ".out" not in m.list()


def test_submit_on_close__hopeless_bytes__write_says_so():
    """What cannot become a request any more is refused while it is written (K01-07)."""
    with Mount() as m:
        for shell in ("bash", "dash"):
            r = run([shell, "-c", f"echo '{{\"prompt\":x}}' > {m.job(shell + '.json')}"])
            assert r.returncode != 0 and "error" in r.stderr, r  # dash calls it an I/O error
            equal(m.done(shell)["state"], "failed", shell)
        equal(m.started(), 0, "runs")


def test_submit_on_close__descriptor_held_by_a_child__runs_at_the_last_close():
    """A close by one of two holders is not the end."""
    with Mount() as m:
        fd = os.open(m.job("h.txt"), os.O_WRONLY | os.O_CREAT, 0o600)
        child = subprocess.Popen(["sleep", "60"], pass_fds=[fd])
        os.write(fd, b"held")
        os.close(fd)
        time.sleep(0.2)
        equal((m.state("h"), m.started()), ("writing", 0), "while the child holds it")
        child.kill()
        child.wait()
        equal(m.out("h"), "held\n", "after the child's end")


def test_empty__touch__nothing_runs():
    """An empty file is no request; the first text is (K02-01)."""
    with Mount() as m:
        ok(f"touch {m.job('t.json')}; : > {m.job('u.txt')}")
        time.sleep(0.2)
        equal((m.started(), m.state("t"), m.state("u")), (0, "writing", "writing"), "after touch")
        assert "written" in m.status("t")["note"]
        equal(run(["timeout", "0.3", "cat", m.job("t.out")]).returncode, 124, "reading waits")
        equal(errno_of(lambda: os.read(os.open(m.job("t.out"), os.O_NONBLOCK), 1)), errno.EAGAIN,
              "not waiting")
        m.put("t.json")
        equal((m.out("t"), m.started()), ("x\n", 1), "after the text")


def test_empty__opened_for_writing_and_closed__nothing_runs():
    """Without a write there is nothing new to run (K02-01)."""
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
            os.close(os.open(m.job("a.txt"), flags))
        equal((m.out("a"), m.started()), ("text\n", 1), "runs")


def test_truncate__overwritten__no_tail_of_the_old():
    """O_TRUNC comes with open, not as a change of size (K02-03)."""
    with Mount() as m:
        m.put("o.json", '{"model":"echo","prompt":"a very long first text ........"}')
        m.done("o")
        for shell in ("bash", "dash"):
            ok([shell, "-c", f"printf '{REQUEST}' > {m.job('o.json')}"])
            equal(os.stat(m.job("o.json")).st_size, len(REQUEST), "size")
            equal(m.out("o"), "x\n", "output")
        equal(m.started(), 3, "runs")


def test_truncate__to_nothing__old_results_gone():
    """An emptied request has no results and waits for a text (K02-03)."""
    with Mount() as m:
        m.put("o.txt", "first")
        m.done("o")
        ok(f": > {m.job('o.txt')}")
        assert "o.out" not in m.list()
        equal((m.state("o"), m.started()), ("writing", 1), "emptied")


def test_truncate__in_the_open_file__only_the_second_text_runs():
    """ftruncate and a new text on the same descriptor are one request (K02-03)."""
    with Mount() as m:
        fd = os.open(m.job("f.json"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b'{"prompt":"the first"}')
        os.ftruncate(fd, 0)
        os.pwrite(fd, b'{"prompt":"2"}', 0)
        os.close(fd)
        equal((m.out("f"), m.started()), ("2\n", 1), "run")


def test_exclusive_create__eight_at_once__one_wins():
    """noclobber guards as on any file system (K02-06)."""
    with Mount() as m:
        line = (f"set -C; for i in 1 2 3 4 5 6 7 8; do ( printf '{REQUEST}' > {m.job('once.json')}"
                " && echo won ) 2>/dev/null & done; wait")
        equal(ok(["bash", "-c", line]).split(), ["won"], "winners")
        m.done("once")
        equal(m.started(), 1, "runs")
        equal(errno_of(os.open, m.job("once.json"), os.O_CREAT | os.O_EXCL), errno.EEXIST, "again")


def test_append__second_redirection__behind_the_first():
    """The kernel appends at the size it is told (K03-01)."""
    with Mount() as m:
        run(f"printf '{{\"model\":\"echo\",' > {m.job('ap.json')}")
        equal(m.done("ap")["state"], "failed", "the first half alone")
        ok(f"printf '\"prompt\":\"x\"}}' >> {m.job('ap.json')}")
        equal(m.out("ap"), "x\n", "both halves")
        equal(read(m.job("ap.json")), '{"model":"echo","prompt":"x"}', "the request")


def test_append__while_it_runs__busy_and_intact():
    """A request on the device does not change (K03-01)."""
    with Mount(DELAY) as m:
        m.put("s.json", LONG_REQUEST)
        r = run(f"echo more >> {m.job('s.json')}")
        assert r.returncode != 0 and "busy" in r.stderr, r
        equal(read(m.job("s.json")), LONG_REQUEST, "the request")


def test_write__three_mebibytes_in_one_call__read_back_identical():
    """One write(2) arrives in pieces; the request is whole or refused (K03-06)."""
    text = b'{"prompt":"' + b"p" * (3 * 1024 * 1024 + 7) + b'"}'
    with Mount() as m:
        fd = os.open(m.job("l.json"), os.O_WRONLY | os.O_CREAT, 0o600)
        equal(os.write(fd, text), len(text), "written")
        os.close(fd)
        with open(m.job("l.json"), "rb") as f:
            equal(hashlib.sha256(f.read()).digest(), hashlib.sha256(text).digest(), "digest")
        s = m.done("l")
        equal(s["state"], "failed", "a prompt beyond the context")
        assert "token" in s["reason"], s


def test_write__past_the_limit__refused_and_no_job():
    """A request too large is refused at write, never cut (K03-06)."""
    with Mount("request_size=64k") as m:
        equal(m.send("big.txt", "b" * 65537), errno.EFBIG, "one byte too many")
        equal(m.send("fits.txt", " " * 65530), 0, "what fits")
        m.done("fits")
        assert m.state("big") in ("writing", "failed")
        r = run(f"head -c 100000 /dev/zero | tr '\\0' a > {m.job('sh.txt')}")
        assert "too large" in r.stderr, r


def test_write__back_to_front__the_whole_runs():
    """Offsets are the writer's business."""
    with Mount() as m:
        fd = os.open(m.job("p.json"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(fd, b'"back"}', 10)
        os.pwrite(fd, b'{"prompt":', 0)
        os.close(fd)
        equal(m.out("p"), "back\n", "output")


def test_write__over_longer_content_then_cut__only_the_new_runs():
    """Editors write over the old bytes and truncate: not an error in between."""
    with Mount() as m:
        m.put("e.json", '{"prompt":"a long text that goes away"}')
        m.done("e")
        with open(m.job("e.json"), "r+b", buffering=0) as f:
            f.write(b'{"prompt":"b"}')
            f.truncate()
        equal((m.out("e"), m.started()), ("b\n", 2), "run")


def test_append__echo_twice__no_writeback_cache():
    """Appending to a file open for writing only needs no read (K03-07)."""
    need_root()
    with Mount() as m:
        ok(f"echo a > {m.job('wb.txt')}")
        m.done("wb")
        ok(f"echo b >> {m.job('wb.txt')}")
        equal((m.out("wb"), read(m.job("wb.txt"))), ("a\nb\n", "a\nb\n"), "text")
        equal(sh_as(U1, f"echo c >> {m.job('wb.txt')}").returncode, 2, "another's")
