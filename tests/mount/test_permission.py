"""Who may do what: the daemon decides every access itself (K08)."""

import errno
import os
import pwd
import stat

from harness import (DELAY, LONG_REQUEST, U1, U2, Mount, as_user, equal, errno_of, need_root,
                     open_fuse_device, read, run, sh_as, until, write)

MODES = ((os.R_OK, os.O_RDONLY), (os.W_OK, os.O_WRONLY))


def test_private_file__other_user__eacces_whatever_is_cached():
    """Modes are no decoration (K08-01)."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, "pv.json")
        m.done("pv")
        for name in ("pv.json", "pv.out", "pv.status"):
            read(m.job(name))  # root's visit fills the caches
            equal(as_user(U2, errno_of, read, m.job(name)), errno.EACCES, name)
            read_as_owner = as_user(U1, read, m.job(name))
            equal(read_as_owner, read(m.job(name)), name)
        equal(as_user(U2, errno_of, write, m.job("pv.json"), "x"), errno.EACCES, "writing")
        options = [x.split()[3] for x in read("/proc/mounts").splitlines() if m.path in x][0]
        for option in ("nosuid", "nodev", "noexec", "allow_other"):
            assert option in options.split(","), options
        assert "default_permissions" not in options


def private_folder(m):
    """A folder only its owner may search, with a file open to all in it."""
    os.mkdir(m.job("mine"), 0o700)
    m.put("mine/a.txt", "text")
    m.done("mine/a")
    os.chmod(m.job("mine/a.txt"), 0o644)


def test_private_folder__other_user__nothing_in_it_can_be_reached():
    """Search permission counts on every folder above, cached or not (K08-01)."""
    need_root()
    with Mount("jobs_umask=0") as m:
        as_user(U1, private_folder, m)
        names = ("mine/a.txt", "mine/a.out", "mine/a.status")
        for name in names:
            read(m.job(name))
        calls = [(os.listdir, "mine"), (os.chdir, "mine"), (m.put, "mine/b.txt")]
        calls += [(call, name) for name in names for call in (os.stat, read, os.unlink)]
        for call, name in calls:
            path = name if call == m.put else m.job(name)
            got = as_user(U2, errno_of, call, path)
            equal(got, errno.EACCES, f"{call.__name__} {name}")
        equal(as_user(U1, read, m.job("mine/a.out")), "text\n", "its owner")


def test_open_descriptor__handed_to_another_user__goes_on():
    """What is open stays open, as everywhere."""
    need_root()
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        with open(m.job("a.out"), "rb", buffering=0) as f:
            equal(as_user(U2, os.read, f.fileno(), 100), b"text\n", "read")


def test_open_descriptor__folder_closed_since__can_be_cut():
    """ftruncate is asked of the open file, not of the way to it."""
    need_root()

    def cut(m):
        os.setresuid(U1, U1, 0)
        fd = os.open(m.job("d/a.bin"), os.O_RDWR)
        os.seteuid(0)
        os.chmod(m.job("d"), 0o700)
        os.seteuid(U1)
        os.ftruncate(fd, 2)
        return os.pread(fd, 9, 0)

    with Mount("jobs_umask=0") as m:
        os.mkdir(m.job("d"))
        m.put("d/a.bin", "12345")
        os.chmod(m.job("d/a.bin"), 0o666)
        equal(as_user(0, cut, m), b"12", "what is left")


def test_groups__supplementary__count():
    """The caller's groups are asked for, all of them."""
    need_root()
    with Mount("jobs_umask=0") as m:
        m.put("g.txt", "text")
        m.done("g")
        os.chown(m.job("g.txt"), 0, 4242)
        os.chmod(m.job("g.txt"), 0o640)
        equal(as_user(U1, errno_of, m.out, "g"), errno.EACCES, "without the group")
        equal(as_user(U1, m.out, "g", groups=(7, 4242)), "text\n", "with it")
        many = tuple(range(5000, 5200)) + (4242,)
        equal(as_user(U1, m.out, "g", groups=many), "text\n", "with two hundred others")


def test_set_gid_folder__owner_not_in_its_group__bit_not_kept():
    """Nobody makes files of a group he is not in."""
    need_root()
    with Mount("jobs_umask=0") as m:
        os.mkdir(m.job("d"))
        os.chown(m.job("d"), U1, 4242)
        for groups, want in (((), 0o755), ((4242,), 0o2755)):
            as_user(U1, os.chmod, m.job("d"), 0o2755, groups=groups)
            equal(oct(os.stat(m.job("d")).st_mode & 0o7777), oct(want), f"groups {groups}")


def test_sticky_folder__others_requests__neither_removed_nor_renamed():
    """Nobody cancels another's job (K08-02)."""
    need_root()
    with Mount(DELAY) as m:
        equal(stat.S_IMODE(os.stat(m.jobs).st_mode), 0o1777, "mode of jobs/")
        as_user(U1, m.put, "st.json", LONG_REQUEST)
        as_user(U2, m.put, "mine.bin", "x")
        for call, args in ((os.unlink, ("st.json",)), (os.rename, ("st.json", "st2.json")),
                           (os.rename, ("mine.bin", "st.json")), (m.put, ("st.json",)),
                           (os.truncate, ("st.json", 0))):
            paths = args if call == m.put else [m.job(a) if isinstance(a, str) else a for a in args]
            got = as_user(U2, errno_of, call, *paths)
            assert got in (errno.EPERM, errno.EACCES), (call.__name__, args, got)
        r = sh_as(U2, f"rm -f {m.job('st.json')}")
        assert r.returncode == 1 and "permitted" in r.stderr, r
        m.runs("st")
        as_user(U1, os.unlink, m.job("st.json"))


def test_sticky_folder__others_results__not_removed():
    """Results follow the rule of their request (K08-02)."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, "st.json")
        m.done("st")
        equal(as_user(U2, errno_of, os.unlink, m.job("st.out")), errno.EPERM, "another's")
        as_user(U1, os.unlink, m.job("st.out"))


def agrees(path):
    """access(2) and open(2) say the same; X_OK on files is false. A list of differences."""
    wrong = []
    for want, flags in MODES:
        err = errno_of(lambda f: os.close(os.open(path, f)), flags)
        if os.access(path, want) != (err == 0):
            wrong.append((path, want, err))
    if os.access(path, os.X_OK):
        wrong.append((path, "x"))
    return wrong


def test_access__every_kind_of_file_and_user__agrees_with_open():
    """access(2) is no other opinion (K08-05)."""
    need_root()
    with Mount("jobs_umask=0") as m:
        for mode in (0o600, 0o644, 0o755, 0o040, 0o000):
            stem = f"m{mode:o}"
            as_user(U1, m.put, stem + ".txt", "x")
            m.done(stem)
            os.chmod(m.job(stem + ".txt"), mode)
        as_user(U1, os.mkdir, m.path + "/sessions/s")
        files = [m.job(n) for n in m.list()]
        files += [m.path + "/sessions/s/" + n for n in os.listdir(m.path + "/sessions/s")]
        files += [os.path.join(m.path, n)
                  for n in ("health", "README", "metrics", "capabilities", "models/echo/state")]
        for uid in (0, U1, U2):
            for path in files:
                equal(as_user(uid, agrees, path), [], f"uid {uid}")


def test_mounted_by_a_user__that_user_alone():
    """A user's mount serves the user; others are refused at once (K08-07)."""
    need_root()
    uid = pwd.getpwnam("nobody").pw_uid  # fusermount3 asks for the user's name
    m = Mount(uid=uid, wait=False)
    try:
        open_fuse_device(m)
        m.start()
        until(m.serves, 10, "the daemon serves")
        as_user(uid, m.put, "a.txt", "text")
        equal(as_user(uid, m.out, "a"), "text\n", "the user's job")
        equal(as_user(uid, m.done, "a")["uid"], str(uid), "its owner")
        as_user(uid, os.mkdir, m.path + "/sessions/s")
        equal(as_user(uid, read, m.path + "/sessions/s/length"), "0\n", "the user's session")
        equal(as_user(U2, errno_of, os.listdir, m.path), errno.EACCES, "another user")
        m.stop()
    finally:
        m.clear()


def test_private__mounted_by_root__users_refused():
    """With `private` root's mount serves root alone."""
    need_root()
    with Mount("private") as m:
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "root's job")
        equal(as_user(U2, errno_of, read, m.path + "/health"), errno.EACCES, "a user")
        equal(run(["df", m.path]).returncode, 0, "df")


def test_jobs_folder__owner_and_mode__nobody_changes_them():
    """`rsync -a` and `cp -a` by root would close it to everyone else."""
    with Mount() as m:
        equal(errno_of(os.chmod, m.jobs, 0o755), errno.EPERM)
        equal(errno_of(os.chown, m.jobs, U1, U1), errno.EPERM)
        os.utime(m.jobs)
        equal(os.stat(m.jobs).st_mode & 0o7777, 0o1777)
