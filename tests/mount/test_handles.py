"""File handles, as an NFS server would keep them, never name another file (K18)."""

import os

from harness import Mount, equal, need_root, ok, run, tool, until

REFUSED = ("ESTALE", "EOPNOTSUPP", "ENOENT")


def handle(m, name):
    """Keep the handle of a file; the path of the keeping."""
    kept = os.path.join(m.dir, "handle")
    r = run([tool("handle"), "save", m.job(name), kept])
    return kept if r.returncode == 0 else None


def opened(m, kept):
    """What opening a kept handle gives."""
    return run([tool("handle"), "open", m.path, kept]).stdout.strip()


def test_handle__file_made_anew__never_the_new_one():
    """The same name is not the same file (K18-01)."""
    need_root()
    with Mount() as m:
        for name, suffix in (("s.txt", "txt"), ("s.out", "out")):
            m.put("s.txt", "old")
            m.done("s")
            kept = handle(m, name)
            if not kept:
                return  # not supported at all
            os.unlink(m.job("s.txt"))
            m.put("s.txt", "new")
            m.done("s")
            os.stat(m.job("s." + suffix))
            assert opened(m, kept) in REFUSED, opened(m, kept)
            os.unlink(m.job("s.txt"))


def test_handle__request_run_again__not_the_old_run():
    """A result's handle belongs to its run (K18-01)."""
    need_root()
    with Mount() as m:
        m.put("s.txt", "old")
        m.done("s")
        kept = handle(m, "s.out")
        m.put("s.txt", "new")
        m.done("s")
        if kept:
            assert opened(m, kept) in REFUSED, opened(m, kept)


def test_handle__daemon_restarted__finds_nothing():
    """Numbers of another start are not ours (K18-01)."""
    need_root()
    with Mount() as m:
        m.put("s.txt", "old")
        m.done("s")
        kept = handle(m, "s.txt")
        m.stop()
        m.wait = False
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "the new daemon serves")
        m.put("s.txt", "new")
        m.done("s")
        ok(["cat", m.job("s.txt")])
        if kept:
            assert opened(m, kept) in REFUSED, opened(m, kept)


def test_handle__session_made_anew__never_the_new_one():
    """Nor one of another start, though its number is the same (K18-01)."""
    need_root()
    with Mount() as m:
        for change in (lambda: None, lambda: (m.stop(), m.start())):
            os.mkdir(m.path + "/sessions/s")
            kept = handle(m, "../sessions/s/length")
            os.rmdir(m.path + "/sessions/s")
            change()
            os.mkdir(m.path + "/sessions/s")
            equal(ok(["cat", m.path + "/sessions/s/length"]), "0\n")
            if kept:
                assert opened(m, kept) in REFUSED, opened(m, kept)
            os.rmdir(m.path + "/sessions/s")


def test_handle__same_file__itself_or_refused():
    """A handle that is good names its own file (K18-01)."""
    need_root()
    with Mount() as m:
        m.put("s.txt", "text")
        m.done("s")
        kept = handle(m, "s.txt")
        if kept:
            equal(opened(m, kept) in ("text",) + REFUSED, True, opened(m, kept))
