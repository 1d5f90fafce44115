"""Names: what runs, what is inert, how editors and copiers save (K06)."""

import ctypes
import errno
import os
import time

from harness import (DELAY, LONG_REQUEST, REQUEST, U1, U2, Mount, as_user, equal, errno_of, need,
                     need_root, ok, read, run, until, write)

INERT = (".hidden.json", ".a.txt.swp", "a.json~", "a.json.tmp", "4913", "sedAb12Cd", "x.npy",
         "x.bin", "noext", "a.JSON", "a.txt.bak", "#a.txt#", ".json", ".txt", "out", "a.b.c")


def test_inert__any_other_name__never_runs_and_is_a_plain_file():
    """Names that are no requests have no results (K06-01)."""
    with Mount() as m:
        for name in INERT:
            m.put(name)
            equal(read(m.job(name)), REQUEST, name)
        time.sleep(0.2)
        equal((m.started(), m.list()), (0, sorted(INERT)), "after all")
        equal(errno_of(os.stat, m.job(".hidden.status")), errno.ENOENT, "a status")
        for name in INERT:
            os.unlink(m.job(name))
        equal(m.list(), [], "left")


def test_rename__temporary_file_becomes_a_request__one_run():
    """Save by temporary file and rename (K06-01)."""
    with Mount() as m:
        m.put(".tmp.1")
        equal(m.started(), 0, "before")
        os.rename(m.job(".tmp.1"), m.job("rn.json"))
        equal((m.out("rn"), m.started()), ("x\n", 1), "after")
        equal(m.list(), ["rn.json", "rn.out", "rn.status"], "left")


def test_rename__while_open_for_writing__runs_at_the_close():
    """Renaming first and closing after is one submission too."""
    with Mount() as m:
        with open(m.job("tmp"), "wb", buffering=0) as f:
            f.write(b"text")
            os.rename(m.job("tmp"), m.job("w.txt"))
            time.sleep(0.1)
            equal((m.started(), m.state("w")), (0, "writing"), "while it is open")
        equal((m.out("w"), m.started()), ("text\n", 1), "after the close")


def test_rename__request_to_another_name__results_go_along():
    """A request keeps its run; no second one starts."""
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        os.rename(m.job("a.txt"), m.job("b.txt"))
        equal(m.list(), ["b.out", "b.status", "b.txt"], "names")
        equal((m.out("b"), m.started()), ("text\n", 1), "run")
        os.rename(m.job("b.txt"), m.job("b.old"))
        equal(m.list(), ["b.old"], "no request any more")


def test_rename__over_a_finished_request__new_run_no_old_results():
    """Atomic replacement is a new request (K06-01)."""
    with Mount() as m:
        m.put("a.json", '{"prompt":"old"}')
        m.done("a")
        m.put("a.json.new", '{"prompt":"new"}')
        os.rename(m.job("a.json.new"), m.job("a.json"))
        equal((m.out("a"), m.started()), ("new\n", 2), "run")


def test_rename__over_a_running_request__busy():
    """What is on the device is not replaced (K06-01)."""
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        m.put("new")
        equal(errno_of(os.rename, m.job("new"), m.job("a.json")), errno.EBUSY, "rename")
        equal(m.list()[:1] + m.list()[-1:], ["a.json", "new"], "both are there")


def test_rename__as_its_answer_is_being_stored__busy_and_no_part_of_the_file():
    """What a job leaves does not come after mv has made its request a plain file."""
    with Mount(preload="slow_result.c") as m:
        m.stop()
        m.env["SLOW_RESULT"] = m.dir + "/slow"
        m.start()
        m.put("a.txt", "slow answer" + "x" * 50)
        until(lambda: os.path.exists(m.dir + "/slow"), what="the answer is being written")
        equal(errno_of(os.rename, m.job("a.txt"), m.job("notes")), errno.EBUSY)
        equal(m.out("a"), "slow answer" + "x" * 50 + "\n", "the answer")
        os.rename(m.job("a.txt"), m.job("notes"))
        equal(read(m.job("notes")), "slow answer" + "x" * 50)


def test_rename__reader_waits_for_the_empty_request__gets_the_result():
    """A waiting reader belongs to the name that is being filled."""
    with Mount() as m:
        m.put("r.txt", "")
        waiting = os.popen(f"cat {m.job('r.out')}")
        time.sleep(0.3)
        m.put(".r.new", "text")
        os.rename(m.job(".r.new"), m.job("r.txt"))
        equal(waiting.read(), "text\n", "the reader")
        waiting.close()


def copy_like_rsync(m):
    """The calls rsync makes."""
    fd = os.open(m.job(".rs2.json.Ab1Cd2"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, REQUEST.encode())
    os.fchown(fd, -1, os.getgid())
    os.fchmod(fd, 0o644)
    os.utime(fd, (1, 1))
    os.close(fd)
    os.rename(m.job(".rs2.json.Ab1Cd2"), m.job("rs2.json"))


def test_rsync__archive_copy__one_run():
    """Owner, mode and times before the rename are allowed (K06-02)."""
    need("rsync")
    with Mount() as m:
        write(m.dir + "/rs.json", REQUEST)
        ok(["rsync", "-a", m.dir + "/rs.json", m.jobs + "/"])
        equal((m.out("rs"), m.started()), ("x\n", 1), "run")
        as_user(U1, copy_like_rsync, m)
        equal((m.out("rs2"), m.started()), ("x\n", 2), "run")
        equal(os.stat(m.job("rs2.json")).st_mtime, 1, "time")


def test_chown__to_oneself_or_another__own_only():
    """Giving a file away is EPERM (K06-02)."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, "a.txt", "text")
        m.done("a")
        equal(as_user(U1, errno_of, os.chown, m.job("a.txt"), U1, U1), 0, "oneself")
        equal(as_user(U1, errno_of, os.chown, m.job("a.txt"), U2, -1), errno.EPERM, "another")
        equal(as_user(U1, errno_of, os.chown, m.job("a.txt"), -1, U2), errno.EPERM, "group")


def test_emacs_lock__dangling_symlink__eperm_and_nothing_made():
    """ln -s is refused in words that programs know (K06-04)."""
    with Mount() as m:
        r = run(["ln", "-s", "user@host.123:456", m.job(".#e.json")])
        assert r.returncode == 1 and "not permitted" in r.stderr, r
        ok(["ls", "-la", m.jobs])
        equal((m.list(), m.started()), ([], 0), "left")


def test_sed_in_place__finished_request__one_new_run():
    """sed -i renames over its target (K06-05)."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, "sd.json")
        m.done("sd")
        for uid in (U1, 0):
            r = run(["setpriv", "--reuid", str(uid), "--clear-groups", "sed", "-i", "s/x/xy/",
                     m.job("sd.json")])
            equal((r.returncode, r.stderr), (0, ""), f"sed as {uid}")
            m.done("sd")
        equal((m.out("sd"), m.started()), ("xyy\n", 3), "runs")
        equal(m.list(), ["sd.json", "sd.out", "sd.status"], "left")
        equal(m.status("sd")["uid"], str(U1), "owner")


def vim_saves(m):
    """What vim does with backupcopy=no."""
    fd = os.open(m.job("4913"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o100600)
    os.close(fd)
    os.unlink(m.job("4913"))
    os.rename(m.job("v.txt"), m.job("v.txt~"))
    m.put("v.txt", "second")
    os.chmod(m.job("v.txt"), 0o600)
    os.unlink(m.job("v.txt~"))


def test_vim__backup_and_new_file__one_new_run():
    """The old file moves aside, a new one takes the name (K06-05)."""
    with Mount() as m:
        m.put("v.txt", "first")
        m.done("v")
        vim_saves(m)
        equal((m.out("v"), m.started()), ("second\n", 2), "runs")
        equal(m.list(), ["v.out", "v.status", "v.txt"], "left")


def test_length__results_name_would_pass_255__refused():
    """No name over 255 bytes is ever listed (K06-08)."""
    with Mount() as m:
        for length, want in ((250, 0), (253, 0), (254, errno.ENAMETOOLONG),
                             (255, errno.ENAMETOOLONG), (256, errno.ENAMETOOLONG),
                             (300, errno.ENAMETOOLONG)):
            equal(m.send("0" * (length - 5) + ".json", REQUEST), want, str(length))
        equal(m.send("n" * 255, "inert"), 0, "an inert name")
        m.done("0" * 248)
        assert max(len(n) for n in m.list()) == 255, "longest"
        equal(os.statvfs(m.jobs).f_namemax, 255, "f_namemax")


def test_stem__two_suffixes__second_refused():
    """One stem is one job (K06-10)."""
    with Mount() as m:
        m.put("dup.json")
        m.done("dup")
        r = run(f"echo hello > {m.job('dup.txt')}")
        assert r.returncode != 0 and "exists" in r.stderr, r
        m.put("other.txt", "y")
        equal(errno_of(os.rename, m.job("other.txt"), m.job("dup.txt")), errno.EEXIST, "rename")
        equal(m.out("dup"), "x\n", "the first's output")
        os.rename(m.job("dup.json"), m.job("dup.txt"))
        equal(m.out("dup"), '{"prompt":"x"}\n', "one that changed its kind")


def test_results__created_or_renamed_by_hand__refused():
    """Users may read and remove results, not make them."""
    with Mount() as m:
        for name in ("a.out", "a.err", "a.status", "a.stream"):
            equal(m.send(name, "mine"), errno.EPERM, name)
            equal(errno_of(os.mkdir, m.job(name)), errno.EPERM, "mkdir " + name)
        m.put("a.txt", "text")
        m.done("a")
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
            equal(errno_of(os.open, m.job("a.out"), flags), errno.EACCES, "writing")
        equal(errno_of(os.truncate, m.job("a.out"), 0), errno.EACCES, "truncating")
        equal(errno_of(os.rename, m.job("a.out"), m.job("b")), errno.EPERM, "moving one away")
        equal(errno_of(os.rename, m.job("a.txt"), m.job("a.out")), errno.EPERM, "moving over one")
        equal(errno_of(os.chmod, m.job("a.out"), 0o644), errno.EPERM, "its mode")


def test_results__removed_by_hand__gone_until_the_next_run():
    """Results may be removed one by one; the request stays."""
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        os.unlink(m.job("a.out"))
        equal(m.list(), ["a.status", "a.txt"], "left")
        equal(errno_of(os.stat, m.job("a.out")), errno.ENOENT, "stat")
        m.put("a.txt", "more")
        equal(m.out("a"), "more\n", "after the next run")
        os.unlink(m.job("a.txt"))
        equal(m.list(), [], "after rm")


def test_bytes__not_text__refused():
    """Names are UTF-8 without control characters."""
    with Mount() as m:
        jobs = m.jobs.encode() + b"/"
        for name in (b"a\xff.txt", b"\xed\xa0\x80.json", b"\xc0\xaf"):
            equal(errno_of(write, jobs + name, "x"), errno.EILSEQ, str(name))
        for name in (b"a\nb.txt", b"a\x1b[1m.json", b"\x7f"):
            equal(errno_of(write, jobs + name, "x"), errno.EINVAL, str(name))
        m.put("größe und Länge 🙂.txt", "text")
        equal(m.out("größe und Länge 🙂"), "text\n", "a good name")


def exchange(a, b):
    """renameat2(2) with RENAME_EXCHANGE; its errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = -100  # AT_FDCWD
    return ctypes.get_errno() if libc.renameat2(here, a.encode(), here, b.encode(), 2) else 0


def test_rename__exchange_and_noreplace__as_far_as_offered():
    """RENAME_NOREPLACE is honoured, exchanging refused."""
    with Mount() as m:
        m.put("a", "1")
        m.put("b", "2")
        r = run(["mv", "-n", m.job("a"), m.job("b")])
        equal((read(m.job("a")), read(m.job("b"))), ("1", "2"), f"mv -n: {r}")
        equal(exchange(m.job("a"), m.job("b")), errno.EINVAL, "exchange")


def test_rename__while_it_is_written__judged_by_what_it_is_at_the_end():
    """A judgement of the first text does not run the second."""
    with Mount(DELAY) as m:
        fd = os.open(m.job("a.json"), os.O_CREAT | os.O_WRONLY)
        os.write(fd, b'{"prompt":"x","deadline_ms":1}')
        os.rename(m.job("a.json"), m.job("plain"))
        m.put("plain", '{"prompt":"y"}')
        os.rename(m.job("plain"), m.job("a.json"))
        os.close(fd)
        equal(m.done("a")["state"], "done")
        equal(m.out("a"), "y\n")
