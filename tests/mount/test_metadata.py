"""Times, modes, and calls that are not offered: errors that programs know (K07)."""

import errno
import os
import stat

from harness import (REQUEST, U1, U2, Mount, as_user, equal, errno_of, need, need_root, ok, read,
                     run, sh_as, tool, write)


def test_times__touch_cp_mv_tar__work_and_spoil_nothing():
    """Changes of times and mode before the last close submit nothing (K07-01)."""
    with Mount() as m:
        for name in ("req.json", "req2.json", "one.json"):
            write(os.path.join(m.dir, name), REQUEST)
        ok(["touch", "-d", "2001-01-01", m.job("tm.json")])
        equal(int(os.stat(m.job("tm.json")).st_mtime), 978307200, "touch -d")
        ok(["cp", "-p", m.dir + "/req.json", m.job("tm2.json")])
        ok(["mv", m.dir + "/req2.json", m.job("tm3.json")])
        ok(["tar", "-C", m.dir, "-cf", m.dir + "/one.tar", "one.json"])
        ok(["tar", "-C", m.jobs, "-xf", m.dir + "/one.tar"])
        for stem in ("tm2", "tm3", "one"):
            equal(m.out(stem), "x\n", stem)
        equal((m.started(), m.state("tm")), (3, "writing"), "runs")
        equal(os.stat(m.job("tm2.json")).st_mtime_ns, os.stat(m.dir + "/req.json").st_mtime_ns,
              "cp -p")


def mode_of(m, name):
    """Permission bits."""
    return oct(stat.S_IMODE(os.stat(m.job(name)).st_mode))


def test_mode__default__private_whatever_the_umask():
    """New files are private by default (K07-02)."""
    need_root()
    with Mount() as m:
        for umask in ("000", "022", "077"):
            sh_as(U1, f"umask {umask}; printf x > {m.job('um' + umask + '.txt')}")
            m.done("um" + umask)
            equal(mode_of(m, f"um{umask}.txt"), "0o600", umask)
            equal(mode_of(m, f"um{umask}.out"), "0o400", umask)
        equal(as_user(U2, errno_of, m.out, "um000"), errno.EACCES, "another user")


def test_mode__jobs_umask_0__the_users_umask_counts():
    """Create mode and umask are honoured; results are no wider than the request (K07-02)."""
    need_root()
    with Mount("jobs_umask=0") as m:
        for umask, want, result in (("022", "0o644", "0o444"), ("077", "0o600", "0o400"),
                                    ("027", "0o640", "0o440")):
            sh_as(U1, f"umask {umask}; printf x > {m.job('um' + umask + '.txt')}")
            m.done("um" + umask)
            equal(mode_of(m, f"um{umask}.txt"), want, umask)
            for suffix in (".out", ".status"):
                equal(mode_of(m, f"um{umask}" + suffix), result, umask)
        equal(as_user(U2, m.out, "um022"), "x\n", "another user, 644")
        equal(as_user(U2, errno_of, m.out, "um077"), errno.EACCES, "another user, 600")
        os.chmod(m.job("um022.txt"), 0o600)
        equal(mode_of(m, "um022.out"), "0o400", "after chmod")


def test_not_offered__links_and_devices__eperm():
    """Never "Function not implemented" (K07-04)."""
    with Mount() as m:
        m.put("a.json")
        calls = {
            "link": (os.link, m.job("a.json"), m.job("b.json")),
            "symlink": (os.symlink, "a.json", m.job("c.json")),
            "mkfifo": (os.mkfifo, m.job("p")),
            "mknod": (os.mknod, m.job("n"), stat.S_IFBLK | 0o600, os.makedev(1, 1)),
            "mknod of a file": (os.mknod, m.job("f"), stat.S_IFREG | 0o600),
            "rmdir of models": (os.rmdir, m.path + "/models"),
            "mkdir in the root": (os.mkdir, m.path + "/new"),
            "create in the root": (write, m.path + "/new", "x"),
            "unlink in the root": (os.unlink, m.path + "/README"),
            "rename in the root": (os.rename, m.path + "/README", m.path + "/R"),
            "rename out of jobs": (os.rename, m.job("a.json"), m.path + "/a.json"),
        }
        for what, (call, *args) in calls.items():
            equal(errno_of(call, *args), errno.EPERM, what)
        m.done("a")
        equal(m.list(), ["a.json", "a.out", "a.status"], "left")


def test_not_offered__writing_fixed_files__refused_for_root_too():
    """What the daemon shows cannot be written (K07-04)."""
    with Mount() as m:
        for name in ("health", "README", "models/echo/state", "manifests/echo.json"):
            path = os.path.join(m.path, name)
            equal(errno_of(os.open, path, os.O_WRONLY), errno.EACCES, name)
            equal(errno_of(os.truncate, path, 0), errno.EACCES, name)
            equal(errno_of(os.chmod, path, 0o777), errno.EPERM, name)
            equal(errno_of(os.utime, path), errno.EPERM, name)


def test_folders__made_moved_removed__as_anywhere():
    """Subfolders of jobs/ are folders; too deep is EMLINK."""
    with Mount("max_depth=3") as m:
        os.makedirs(m.job("a/b/c"))
        equal(errno_of(os.mkdir, m.job("a/b/c/d")), errno.EMLINK, "too deep")
        equal(errno_of(os.mkdir, m.job("x.json")), errno.EPERM, "a request's name")
        m.put("a/b/r.txt", "text")
        equal(m.out("a/b/r"), "text\n", "a job in a folder")
        equal(errno_of(os.rmdir, m.job("a/b")), errno.ENOTEMPTY, "not empty")
        os.rename(m.job("a/b/r.txt"), m.job("r.txt"))
        equal((m.out("r"), m.started()), ("text\n", 1), "moved up")
        equal(errno_of(os.rename, m.job("a"), m.job("a/b/a")), errno.EINVAL, "into itself")
        equal(os.stat(m.job("a")).st_nlink, 3, "links")
        ok(["rm", "-r", m.job("a")])
        equal(m.list(), ["r.out", "r.status", "r.txt"], "left")


def test_reflink__auto_always_plain__copies_or_refuses():
    """Copies fall back; a clone is refused and leaves no job (K07-07)."""
    with Mount() as m:
        write(m.dir + "/req.json", REQUEST)
        ok(["cp", "--reflink=auto", m.dir + "/req.json", m.job("cr.json")])
        equal(m.out("cr"), "x\n", "auto")
        r = run(["cp", "--reflink=always", m.job("cr.json"), m.job("cr2.json")])
        assert r.returncode == 1 and "not supported" in r.stderr, r
        ok(["cp", m.job("cr.json"), m.job("cr3.json")])
        equal((m.out("cr3"), m.started()), ("x\n", 2), "plain")


def test_tmpfile__o_tmpfile__eopnotsupp():
    """Programs then fall back to a name (K07-08)."""
    with Mount() as m:
        equal(errno_of(os.open, m.jobs, os.O_TMPFILE | os.O_RDWR), errno.EOPNOTSUPP, "O_TMPFILE")


def test_xattr__asked_for__none_and_no_noise():
    """ls -Z, cp -a and getfattr go through (K07-09)."""
    with Mount() as m:
        m.put("s.txt", "text")
        m.done("s")
        for name in ("security.selinux", "system.posix_acl_access", "user.x"):
            got = errno_of(os.getxattr, m.job("s.out"), name)
            assert got in (errno.ENODATA, errno.EOPNOTSUPP), (name, got)
        equal(errno_of(os.setxattr, m.job("s.txt"), "user.x", b"1"), errno.EOPNOTSUPP, "setting")
        assert "?????" not in ok(["ls", "-laZ", m.path, m.jobs])
        ok(["cp", "-a", m.job("s.out"), m.dir + "/copy"])
        equal(read(m.dir + "/copy"), "text\n", "cp -a")
        need("getfattr")
        r = run(["getfattr", "-d", "-m", "-", m.job("s.out")])
        assert r.stdout == "" and (r.stderr == "" or "not supported" in r.stderr), r


def test_statfs__everybody__sane_figures():
    """df neither fails nor shows a full disk (K07-11)."""
    need_root()
    with Mount() as m:
        ok(["df", "-P", m.path])
        equal(sh_as(U2, f"df {m.jobs}").returncode, 0, "df as a user")
        blocks, free, names = ok(["stat", "-f", "-c", "%b %a %l", m.path]).split()
        assert int(blocks) > 0 and int(free) > 0, (blocks, free)
        equal(names, "255", "name length")
        m.put("big.bin", b"b" * 1000000)
        after = int(ok(["stat", "-f", "-c", "%a", m.path]))
        assert int(free) - after in (244, 245), (free, after)


def test_inodes__three_thousand_entries__as_stat_says():
    """d_ino is st_ino, never 0, unique; only the root is 1 (K07-13)."""
    with Mount() as m:
        for i in range(1000):
            m.put(f"i{i}.txt", "x")
        m.done("i999")
        equal(ok([tool("dir"), "inodes", m.jobs]), "entries 3000\n", "jobs")
        for folder in ("", "/models", "/models/echo", "/manifests"):
            ok([tool("dir"), "inodes", m.path + folder])
        equal(os.stat(m.path).st_ino, 1, "the root")
