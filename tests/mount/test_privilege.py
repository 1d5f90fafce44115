"""The daemon gives up its privileges once it has mounted; a keeper unmounts at the end."""

import errno
import os
import pwd
import signal
import time

from harness import (U1, Mount, as_user, equal, errno_of, need_root, ok, open_fuse_device, read, run,
                     until)
from test_life import Unstarted, background, daemons, mounts, name_of, unmounted

KEEPER = "npufs-keeper"
CAPS = {"dac_read_search": 2, "ipc_lock": 14, "sys_admin": 21, "sys_nice": 23}
SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")


def bits(*names):
    """A set as /proc shows it."""
    return sum(1 << CAPS[n] for n in names)


def fields(path):
    """What a status file of /proc says."""
    return dict(line.split(":", 1) for line in read(path).splitlines() if ":" in line)


def threads(pid):
    """The status of every thread."""
    return [fields(f"/proc/{pid}/task/{t}/status") for t in os.listdir(f"/proc/{pid}/task")]


def expect_caps(pid, *names):
    """Every thread has these and no others, and gets no more."""
    found = threads(pid)
    for status in found:
        got = {name: int(status[name], 16) for name in SETS}
        want = {"CapInh": 0, "CapPrm": bits(*names), "CapEff": bits(*names), "CapAmb": 0}
        equal(got, want, status["Name"])
        equal(int(status["CapBnd"], 16), bits(*names), "bounding set")
        equal(status["NoNewPrivs"].strip(), "1", status["Name"])
    return len(found)


def keeper(m):
    """The process that will unmount."""
    pid, = daemons(m, KEEPER)
    return pid


def test_daemon__every_thread__no_privilege():
    """Jobs, commands and their threads run without any."""
    need_root()
    with Mount("inotify") as m:
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "a job")
        assert expect_caps(m.pid) > 3
        limit, = [x for x in read(f"/proc/{m.pid}/limits").splitlines() if "core file" in x]
        equal(limit.split()[4:6], ["0", "0"], "core files")


def test_keep_caps__two_named__exactly_these():
    """For a vendor's runtime."""
    need_root()
    with Mount("keep_caps=ipc_lock+sys_nice") as m:
        assert expect_caps(m.pid, "ipc_lock", "sys_nice") > 3


def test_keep_caps__unknown__refused_with_the_nearest():
    """A slip is no privilege, and none is given up silently."""
    for words, told in (("ipc_lok", "ipc_lock"), ("ipc_lock+", "capability"), ("cap_ipc_lock", "ipc_lock")):
        with Unstarted("keep_caps=" + words) as m:
            r = run(m.command())
            equal(r.returncode, 1, words)
            assert told in r.stderr, r.stderr
            equal(mounts(m), 0, "mounts")


def user_mount(*options):
    """A place for a mount by an ordinary user."""
    need_root()
    m = Mount(*options, uid=pwd.getpwnam("nobody").pw_uid, wait=False)
    open_fuse_device(m)
    return m


def test_keep_caps__the_user_does_not_have_it__refused_and_unmounted():
    """What cannot be kept is said."""
    m = user_mount("keep_caps=ipc_lock")
    try:
        m.start()
        m.ends(status=1)
        assert "ipc_lock cannot be kept" in read(m.log), read(m.log)
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")
    finally:
        m.clear()


def test_user__stop__unmounted():
    """fusermount3 works for the keeper, not for the daemon."""
    m = user_mount()
    try:
        m.start()
        until(m.serves, 10, "the daemon serves")
        expect = fields(f"/proc/{m.pid}/status")
        equal((expect["NoNewPrivs"].strip(), int(expect["CapPrm"], 16)), ("1", 0))
        equal(fields(f"/proc/{keeper(m)}/status")["NoNewPrivs"].strip(), "0", "the keeper's")
        m.stop()
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")
        assert "fuse" not in read(m.log) and "mount" not in read(m.log), read(m.log)
    finally:
        m.clear()


def test_user__unmounts_by_hand__daemon_ends_well():
    """The mount has gone already: no error."""
    m = user_mount()
    try:
        m.start()
        until(m.serves, 10, "the daemon serves")
        equal(as_user(m.uid, run, ["fusermount3", "-u", m.path]).returncode, 0, "fusermount3")
        m.ends()
        until(lambda: not daemons(m, KEEPER), 2, "the keeper's end")
        assert "fuse" not in read(m.log) and "mount" not in read(m.log), read(m.log)
    finally:
        m.clear()


def test_stop__files_open__unmounted_without_a_word():
    """A mount in use goes all the same, and nothing complains."""
    need_root()
    with Mount() as m:
        fd = os.open(m.path + "/metrics", os.O_RDONLY)
        m.stop()
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")
        equal(errno_of(os.read, fd, 10), errno.ENOTCONN, "the old descriptor")
        errno_of(os.close, fd)
        assert "fuse" not in read(m.log) and "mount" not in read(m.log), read(m.log)


def test_background__stop__unmounted():
    """The same for a daemon that left the terminal."""
    need_root()
    with Unstarted() as m:
        ok(background(m))
        until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready")
        pid, = daemons(m)
        expect_caps(pid)
        os.kill(pid, signal.SIGTERM)
        until(lambda: not daemons(m) and not daemons(m, KEEPER), 10, "the end of both")
        equal(mounts(m), 0, "mounts")
        ok(background(m))
        unmounted(m)
        until(lambda: not daemons(m, KEEPER), 2, "the keeper's end")


def expect_one_socket(pid):
    """It has this open, and nothing else."""
    fds = {n: os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
    assert fds.pop("3").startswith("socket:"), fds
    equal(fds, {"0": "/dev/null", "1": "/dev/null", "2": "/dev/null"})


def test_keeper__daemon_started_without_stdio__holds_the_same():
    """Whatever numbers its descriptors have."""
    need_root()

    class Bare(Mount):
        """As some managers start it."""

        def command(self):
            return ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *super().command(), "-o", "log=syslog"]

    with Bare() as m:
        expect_one_socket(keeper(m))
        m.stop()
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")


def test_keeper__holds__a_socket_and_two_capabilities():
    """A dead daemon's device must not stay open in it, nor anything of a caller."""
    need_root()
    with Mount() as m:
        pid = keeper(m)
        expect_one_socket(pid)
        equal(os.readlink(f"/proc/{pid}/cwd"), "/", "folder")
        equal(int(fields(f"/proc/{pid}/status")["CapPrm"], 16), bits("sys_admin", "dac_read_search"))


def test_keeper__signals_of_the_whole_group__goes_on():
    """Service managers signal all processes of a service; it is needed last."""
    need_root()
    with Mount() as m:
        pid = keeper(m)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        time.sleep(0.2)
        equal(keeper(m), pid, "the keeper")
        m.stop()
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")


def test_daemon_killed__keeper__ends_and_the_next_start_clears():
    """Nobody waits for a dead daemon (K09-01)."""
    need_root()
    with Mount() as m:
        pid = keeper(m)
        equal(name_of(pid), KEEPER)
        m.proc.kill()
        m.proc.wait()
        until(lambda: not daemons(m, KEEPER), 2, "the keeper's end")
        equal(errno_of(os.listdir, m.path), errno.ENOTCONN, "the mount")
        m.wait = False
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "the new daemon serves")
        equal(mounts(m), 1, "mounts")


def test_keeper_killed__stop__ends_well_and_the_next_start_clears():
    """Without it a dead mount stays, as after a crash; it is said."""
    need_root()
    with Mount() as m:
        os.kill(keeper(m), signal.SIGKILL)
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "a job without it")
        m.stop()
        assert "next start clears" in read(m.log), read(m.log)
        equal(errno_of(os.listdir, m.path), errno.ENOTCONN, "the mount")
        m.wait = False
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "the new daemon serves")
        equal(mounts(m), 1, "mounts")


def closed_folder(*options):
    """A mountpoint below a folder that is another user's alone."""
    m = Mount(*options)
    closed = os.path.join(m.dir, "closed")
    os.makedirs(closed + "/mnt")
    os.chown(closed, U1, U1)
    os.chmod(closed, 0o700)
    m.path = closed + "/mnt"
    m.jobs = m.path + "/jobs"
    return m


def test_mountpoint__in_a_folder_closed_to_root__served_and_unmounted():
    """Root without privileges is no more than another user there."""
    need_root()
    with closed_folder() as m:
        expect_caps(m.pid)
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n")
        m.stop()
        equal(mounts(m), 0, "mounts")
    with closed_folder("inotify", "keep_caps=dac_read_search") as m:
        m.put("a.txt", "text")
        until(lambda: m.metric("npufs_inotify_announced_total") == 1, 10, "announced")


def test_mountpoint__closed_and_to_be_looked_at__refused_with_what_to_do():
    """Announcing needs the way to the mount."""
    need_root()
    m = closed_folder("inotify")
    try:
        r = run(m.command())
        equal(r.returncode, 1, "status")
        assert "mountpoint cannot be reached" in r.stderr and "dac_read_search" in r.stderr, r.stderr
        equal((mounts(m), daemons(m, KEEPER)), (0, []), "mounts and keepers")
    finally:
        m.clear()
