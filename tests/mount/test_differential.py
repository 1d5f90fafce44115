"""The daemon decides every access as the kernel does on a local file system (K08).

One matrix of users, modes, folders and calls is played on the mount and on a tmpfs. What each call
says and what owners, groups and modes are left behind must be the same; EXCEPTIONS names, with its
reason, everything that may differ.
"""

import concurrent.futures
import ctypes
import errno
import itertools
import os
import stat

from harness import REQUEST, Mount, as_user, equal, need_root, ok, read, write

OWNER, MATE, MEMBER, OTHER, GUEST = 1001, 1002, 1003, 1004, 1005
TEAM, CLUB = 4242, 4243
USERS = {  # uid, gid, supplementary groups
    "root": (0, 0, ()),
    "owner": (OWNER, OWNER, (TEAM,)),
    "mate": (MATE, TEAM, ()),
    "member": (MEMBER, MEMBER, (CLUB, TEAM)),
    "other": (OTHER, OTHER, ()),
    "guest": (GUEST, GUEST, (OWNER,)),
}
SELF = "self"  # whoever plays
MODES = (0o000, 0o400, 0o200, 0o600, 0o040, 0o020, 0o060, 0o004, 0o002, 0o006, 0o640, 0o604, 0o644,
         0o660, 0o606, 0o666, 0o466, 0o646, 0o664, 0o111, 0o755, 0o077, 0o707, 0o770)
FOLDERS = (  # uid, gid, mode
    (0, 0, 0o777), (0, 0, 0o755), (0, 0, 0o733), (0, 0, 0o666),
    (0, 0, 0o1777), (0, TEAM, 0o1775), (0, TEAM, 0o775), (0, TEAM, 0o2775), (0, TEAM, 0o3777),
    (OWNER, OWNER, 0o755), (OWNER, OWNER, 0o1777), (OWNER, TEAM, 0o770), (OWNER, TEAM, 0o707),
    (OWNER, TEAM, 0o070), (OWNER, TEAM, 0o1755),
)
OLD, OLDER = 2000, 1000  # times given by hand: by a call, and before it
CREATE = os.O_CREAT | os.O_EXCL
HERE_AT = -100  # AT_FDCWD
CONTENT = b"12345"

# --- calls: each takes the folder of its case --------------------------------------------------


def opened(flags, name="d1/a.dat", mode=0o666):
    """Open; read and write as far as the flags say."""

    def call(top):
        fd = os.open(f"{top}/{name}", flags, mode)
        try:
            read = os.read(fd, 9) if flags & os.O_ACCMODE != os.O_WRONLY else b""
            return read, os.write(fd, b"x") if flags & os.O_ACCMODE != os.O_RDONLY else 0
        finally:
            os.close(fd)

    return call


def asked(want, name="d1/a.dat", **kw):
    """access(2) or faccessat(2)."""
    return lambda top: os.access(f"{top}/{name}", want, **kw)


def on(function, *args, name="d1/a.dat", **kw):
    """A call on one path."""
    return lambda top: function(f"{top}/{name}", *args, **kw)


def on_two(function, a, b):
    """A call on two paths."""
    return lambda top: function(f"{top}/{a}", f"{top}/{b}")


def touched(atime, mtime, name="d1/a.dat"):
    """utimensat(2) with nanoseconds as C takes them."""
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    special = {"now": (0, now), "omit": (0, omit)}
    times = [special.get(t, (t, 0)) for t in (atime, mtime)]

    def call(top):
        libc = ctypes.CDLL(None, use_errno=True)
        spec = (ctypes.c_long * 4)(*times[0], *times[1])
        if libc.utimensat(HERE_AT, f"{top}/{name}".encode(), spec, 0):
            err = ctypes.get_errno()
            raise OSError(err, os.strerror(err))

    return call


def inside(name):
    """chdir into a folder and look at a file from there."""

    def call(top):
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(f"{top}/d1")
            return os.stat(name).st_size
        finally:
            os.fchdir(here)
            os.close(here)

    return call


def masked(umask, call):
    """A call under a umask."""

    def with_mask(top):
        before = os.umask(umask)
        try:
            return call(top)
        finally:
            os.umask(before)

    return with_mask


def made(name, mode=0o666):
    """Create a file."""
    return opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL, name, mode)


def plain_stat(path):
    """What stat tells of owner and mode."""
    st = os.stat(path)
    return st.st_uid, st.st_gid, oct(st.st_mode)


def held(call):
    """Open a file and its folder, lose the way to them, then use what is open."""

    def with_both(top):
        me = os.geteuid()
        folder = os.open(top + "/d1/e1", os.O_RDONLY)
        fd = os.open(top + "/d1/e1/a.dat", os.O_RDWR)
        os.seteuid(0)
        os.chmod(top + "/d1", 0o700)
        os.chown(top + "/d1", 0, 0)
        os.seteuid(me)
        try:
            return call(folder, fd)
        finally:
            os.close(folder)
            os.close(fd)

    return with_both


FILE_CALLS = {
    "open r": opened(os.O_RDONLY),
    "open w": opened(os.O_WRONLY),
    "open rw": opened(os.O_RDWR),
    "open r trunc": opened(os.O_RDONLY | os.O_TRUNC),
    "open w trunc": opened(os.O_WRONLY | os.O_TRUNC),
    "open append": opened(os.O_WRONLY | os.O_APPEND),
    "open r create": opened(os.O_RDONLY | os.O_CREAT),
    "open w create trunc": opened(os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "open create excl": opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "open directory": opened(os.O_RDONLY | os.O_DIRECTORY),
    "stat": on(plain_stat),
    "truncate": on(os.truncate, 2),
    "utime now": on(os.utime),
    "utime now now": touched("now", "now"),
    "utime now omit": touched("now", "omit"),
    "utime omit now": touched("omit", "now"),
    "utime omit omit": touched("omit", "omit"),
    "utime explicit": touched(OLD, OLD),
    "utime now explicit": touched("now", OLD),
    "unlink": on(os.unlink),
    "execve": lambda top: os.execv(f"{top}/d1/a.dat", ["a.dat"]),
    "set-uid open rw": opened(os.O_RDWR),
} | {f"access {want}": asked(want) for want in range(8)} | {
    f"eaccess {want}": asked(want, effective_ids=True) for want in (1, 2, 4, 6)} | {
    f"set-uid access {want}": asked(want) for want in (1, 2, 4)} | {
    f"set-uid eaccess {want}": asked(want, effective_ids=True) for want in (1, 6)}

CHANGES = {f"chmod {mode:o}": (os.chmod, mode) for mode in (
    0o600, 0o000, 0o777, 0o1755, 0o2755, 0o4755, 0o2640, 0o7777)} | {
    f"chown {what}": (os.chown, uid, gid) for what, uid, gid in (
        ("nobody", -1, -1), ("itself", OWNER, -1), ("other uid", OTHER, -1), ("root", 0, -1),
        ("own gid", -1, OWNER), ("team", -1, TEAM), ("club", -1, CLUB), ("group root", -1, 0),
        ("both own", OWNER, OWNER), ("own and team", OWNER, TEAM), ("both", OTHER, TEAM))}

NAME_CALLS = {
    "create": made("d1/new"),
    "create open": opened(os.O_RDWR | os.O_CREAT, "d1/new", 0o640),
    "create again": opened(os.O_RDWR | os.O_CREAT),
    "mkdir": on(os.mkdir, 0o777, name="d1/new"),
    "mkdir again": on(os.mkdir, name="d1/e1"),
    "mkdir over a file": on(os.mkdir),
    "unlink": on(os.unlink),
    "unlink nothing": on(os.unlink, name="d1/none"),
    "unlink folder": on(os.unlink, name="d1/e1"),
    "rmdir": on(os.rmdir, name="d1/e1"),
    "rmdir full": on(os.rmdir, name="d1/full"),
    "rmdir file": on(os.rmdir),
    "rmdir nothing": on(os.rmdir, name="d1/none"),
    "rename": on_two(os.rename, "d1/a.dat", "d1/new"),
    "rename nothing": on_two(os.rename, "d1/none", "d1/new"),
    "rename onto": on_two(os.rename, "d1/a.dat", "d1/b.dat"),
    "rename onto theirs": on_two(os.rename, "d1/mine", "d1/a.dat"),
    "rename onto itself": on_two(os.rename, "d1/a.dat", "d1/a.dat"),
    "rename out": on_two(os.rename, "d1/a.dat", "d2/new"),
    "rename in": on_two(os.rename, "d2/c.dat", "d1/new"),
    "rename in onto": on_two(os.rename, "d2/c.dat", "d1/a.dat"),
    "rename folder": on_two(os.rename, "d1/e1", "d1/new"),
    "rename folder out": on_two(os.rename, "d1/e1", "d2/new"),
    "rename folder in": on_two(os.rename, "d2/e3", "d1/new"),
    "rename folder onto folder": on_two(os.rename, "d1/e1", "d1/e2"),
    "rename folder onto full": on_two(os.rename, "d1/e1", "d1/full"),
    "rename folder onto file": on_two(os.rename, "d1/e1", "d1/a.dat"),
    "rename file onto folder": on_two(os.rename, "d1/a.dat", "d1/e1"),
    "rename into itself": on_two(os.rename, "d1/full", "d1/full/new"),
    "rename onto its parent": on_two(os.rename, "d1/full/c.dat", "d1/full"),
    "listdir": lambda top: sorted(os.listdir(top + "/d1")),
    "stat": on(plain_stat),
    "stat nothing": on(plain_stat, name="d1/none"),
    "stat deeper": on(plain_stat, name="d1/full/c.dat"),
    "chdir": inside("a.dat"),
    "access x": asked(os.X_OK, "d1"),
    "access w": asked(os.W_OK, "d1"),
    "access rwx": asked(7, "d1"),
    "access entry": asked(os.R_OK),
    "access nothing": asked(os.F_OK, "d1/none"),
    "open entry": opened(os.O_RDONLY),
    "open folder w": opened(os.O_WRONLY, "d1"),
    "utime folder": on(os.utime, name="d1"),
    "utime folder explicit": touched(OLD, OLD, "d1"),
    "truncate folder": on(os.truncate, 0, name="d1"),
    "link": on_two(os.link, "d1/a.dat", "d1/new"),
    "symlink": lambda top: os.symlink("a.dat", top + "/d1/new"),
    "mknod": on(os.mknod, name="d1/new"),
    "mkfifo": on(os.mkfifo, name="d1/new"),
}
CREATED = {f"{what} {mode:o} umask {umask:o}": masked(umask, call)
           for mode in (0o777, 0o666, 0o600, 0o1777, 0o2777, 0o4755) for umask in (0, 0o22, 0o77)
           for what, call in (("create", made("d1/new", mode)),
                              ("mkdir", on(os.mkdir, mode, name="d1/new")))}

def moved(flags, a, b):
    """renameat2(2)."""

    def call(top):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(HERE_AT, f"{top}/{a}".encode(), HERE_AT, f"{top}/{b}".encode(), flags):
            err = ctypes.get_errno()
            raise OSError(err, os.strerror(err))

    return call


ODD_CALLS = {f"open {hex(flags)} {name}": opened(flags, name) for flags in (
    os.O_PATH | os.O_NOFOLLOW, os.O_NOATIME, os.O_RDONLY | os.O_NOFOLLOW, os.O_DIRECTORY,
    os.O_WRONLY | os.O_CREAT) for name in ("d1/a.dat/", "d1/new/", "d1/e1/", "d1/e1", "d1/none/x",
                                           "d1/a.dat/x", "d1/e1/../b.dat", "d1/b.dat", "d1/.")} | {
    f"{what} {name}": on(call, name="d1/" + name)
    for name in ("e1/", "new/", "a.dat/", "e1/.", "e1/..", ".", "..", "n" * 255, "n" * 256)
    for what, call in (("mkdir", os.mkdir), ("rmdir", os.rmdir), ("unlink", os.unlink),
                       ("stat", lambda path: os.stat(path).st_mode),
                       ("create", lambda path: os.close(os.open(path, CREATE))))} | {
    f"move {flags} {a} {b}": moved(flags, "d1/" + a, "d1/" + b) for flags in (0, 1)
    for a, b in (("a.dat", "b.dat"), ("a.dat", "new"), ("e1", "new/"), ("a.dat", "new/"),
                 ("a.dat/", "new"), ("e1", "e1"), ("e1/.", "new"), ("e1", ".."), ("none", "b.dat"),
                 ("a.dat", "a.dat"), ("a.dat", "../d2/new"), ("a.dat", "n" * 256))}

HELD_CALLS = {
    "read": held(lambda folder, fd: os.read(fd, 9)),
    "write": held(lambda folder, fd: os.write(fd, b"x")),
    "ftruncate": held(lambda folder, fd: os.ftruncate(fd, 1)),
    "fstat": held(lambda folder, fd: os.fstat(fd).st_size),
    "fchmod": held(lambda folder, fd: os.fchmod(fd, 0o600)),
    "listdir": held(lambda folder, fd: sorted(os.listdir(folder))),
    "statat": held(lambda folder, fd: os.stat("a.dat", dir_fd=folder).st_size),
    "openat": held(lambda folder, fd: os.close(os.open("a.dat", os.O_RDONLY, dir_fd=folder))),
    "createat": held(lambda folder, fd: os.close(
        os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder))),
    "unlinkat": held(lambda folder, fd: os.unlink("a.dat", dir_fd=folder)),
}


def request_calls(name):
    """What can be done to a finished request or one of its results."""
    path = "d1/" + name
    calls = {
        "open r": lambda top: os.close(os.open(f"{top}/{path}", os.O_RDONLY)),
        "open w": lambda top: os.close(os.open(f"{top}/{path}", os.O_WRONLY)),
        "open rw": lambda top: os.close(os.open(f"{top}/{path}", os.O_RDWR)),
        "read": lambda top: len(open(f"{top}/{path}", "rb").read()) > 0,
        "stat": on(plain_stat, name=path),
        "chmod": on(os.chmod, 0o640, name=path),
        "chown": on(os.chown, -1, TEAM, name=path),
        "utime": on(os.utime, name=path),
        "utime explicit": touched(OLD, OLD, path),
        "rename": on_two(os.rename, path, "d1/new"),
        "unlink": on(os.unlink, name=path),
    }
    calls |= {f"access {want}": asked(want, path) for want in range(8)}
    return {f"{what} {name}": call for what, call in calls.items()}


REQUEST_CALLS = {k: v for name in ("x.json", "x.out", "x.status")
                 for k, v in request_calls(name).items()}

# --- cases: a name, what there is, a call ------------------------------------------------------


def file_cases():
    """Files of every mode, in a folder that lets everybody do everything."""
    for mode, gid in [(m, TEAM) for m in MODES] + [(m, OWNER) for m in MODES[::3]]:
        there = (("d1", 0, 0, 0o777), ("d1/a.dat", OWNER, gid, mode))
        for name, call in FILE_CALLS.items():
            yield ("file", name, f"{mode:o} {gid}"), there, call


def change_cases():
    """Mode and owner of files and folders."""
    for path, gid, mode in itertools.product(("d1/a.dat", "d1/e1"), (OWNER, TEAM, CLUB), (0o644,)):
        there = (("d1", 0, 0, 0o777), (path, OWNER, gid, mode))
        for name, (function, *args) in CHANGES.items():
            yield ("change", name, f"{path} {gid}"), there, on(function, *args, name=path)


def name_cases(me):
    """Names in every kind of folder, of files of their owner's and of the player's own. Root may
    do everything, which two folders show; a mate is a member by another way."""
    folders = {0: FOLDERS[:2], MATE: ()}.get(me, FOLDERS)
    own = [f for f in folders if f[2] & 0o1000]
    for folder, uid in [(f, OWNER) for f in folders] + [(f, SELF) for f in own]:
        there = (("d2", 0, 0, 0o777), ("d2/c.dat", uid, TEAM, 0o644), ("d2/e3", uid, TEAM, 0o755),
                 ("d1", *folder), ("d1/a.dat", uid, TEAM, 0o644), ("d1/b.dat", uid, TEAM, 0o600),
                 ("d1/mine", SELF, TEAM, 0o644), ("d1/e1", uid, TEAM, 0o755),
                 ("d1/e2", uid, TEAM, 0o755), ("d1/full", uid, TEAM, 0o755),
                 ("d1/full/c.dat", uid, TEAM, 0o644))
        for name, call in NAME_CALLS.items():
            yield ("name", name, f"{folder[0]}:{folder[1]} {folder[2]:o} {uid}"), there, call


def create_cases():
    """Modes of what is made, under umasks, with and without an inherited group."""
    for folder in ((0, 0, 0o777), (0, TEAM, 0o2777), (0, CLUB, 0o2777)):
        for name, call in CREATED.items():
            yield ("make", name, f"{folder[1]} {folder[2]:o}"), (("d1", *folder),), call


def deep_cases():
    """Folders in folders, of which one is closed."""
    for mode, name in itertools.product((0o700, 0o711, 0o744, 0o070), ("stat", "open r", "unlink")):
        there = (("d1", OWNER, TEAM, mode), ("d1/e1", 0, 0, 0o777), ("d1/e1/e2", 0, 0, 0o777),
                 ("d1/e1/e2/a.dat", OWNER, TEAM, 0o666))
        call = {"stat": on(plain_stat, name="d1/e1/e2/a.dat"),
                "open r": opened(os.O_RDONLY, "d1/e1/e2/a.dat"),
                "unlink": on(os.unlink, name="d1/e1/e2/a.dat")}[name]
        yield ("deep", name, f"{mode:o}"), there, call


def odd_cases():
    """Paths that end oddly, flags and names that are seldom seen."""
    for folder in ((0, 0, 0o777), (OWNER, TEAM, 0o1770)):
        there = (("d2", 0, 0, 0o777), ("d1", *folder), ("d1/a.dat", OWNER, TEAM, 0o644),
                 ("d1/b.dat", OWNER, TEAM, 0o000), ("d1/e1", OWNER, TEAM, 0o755))
        for name, call in ODD_CALLS.items():
            yield ("odd", name, f"{folder[0]}:{folder[1]} {folder[2]:o}"), there, call


def held_cases():
    """Open files and folders to which the way has been closed since."""
    there = (("d1", 0, 0, 0o777), ("d1/e1", 0, 0, 0o777), ("d1/e1/a.dat", OWNER, TEAM, 0o666))
    for name, call in HELD_CALLS.items():
        yield ("held", name, ""), there, call


def inert_cases(me):
    """All that jobs/ is as a file system."""
    return itertools.chain(file_cases(), change_cases(), name_cases(me), create_cases(),
                           deep_cases(), odd_cases(), held_cases())


def request_cases(_):
    """Finished requests, and results as files with the request's owner and read bits."""
    for mode, folder in ([(m, (0, 0, 0o1777)) for m in (0o600, 0o640, 0o644, 0o060, 0o666, 0)] +
                         [(0o644, f) for f in ((0, 0, 0o777), (0, 0, 0o755), (0, TEAM, 0o770))]):
        there = (("d1", *folder), ("d1/x.json", OWNER, TEAM, mode))
        for name, call in REQUEST_CALLS.items():
            yield ("request", name, f"{mode:o} {folder[1]} {folder[2]:o}"), there, call


# --- playing -----------------------------------------------------------------------------------

is_folder = {"d1", "d2", "e1", "e2", "e3", "full"}.__contains__
RESULTS = ("x.out", "x.status")


def make_request(path):
    """A finished request; on the tmpfs also its results. Gives all that the mount makes itself."""
    write(path, REQUEST)
    results = [os.path.join(os.path.dirname(path), name) for name in RESULTS]
    if os.path.exists(results[0]):
        read(results[0])
        return ()
    for result in results:
        write(result, "text")
    return results


def make(path, mode):
    """A file, a folder or a finished request; gives the results that have to be set right too."""
    if is_folder(os.path.basename(path)):
        os.mkdir(path, mode & 0o777)
    elif path.endswith(".json"):
        return make_request(path)
    else:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        os.write(fd, CONTENT)
        os.close(fd)
    return ()


def furnish(top, there, me):
    """Make what a case begins with, as root."""
    os.mkdir(top)
    for path, uid, gid, mode in there:
        results = make(f"{top}/{path}", mode)
        for file, bits in ((f"{top}/{path}", 0o7777), *((r, 0o444) for r in results)):
            os.chown(file, me if uid == SELF else uid, gid)
            if mode & 0o7000 or path.endswith(".json"):
                os.chmod(file, mode & bits)
    for path in ("d1/a.dat", "d2", "d1"):
        if os.path.exists(f"{top}/{path}"):
            os.utime(f"{top}/{path}", (OLDER, OLDER))


def left(top):
    """Everything below: owner, group, type and mode, links, time if it was given by hand, size."""
    found = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            found[path[len(top) + 1:]] = (
                st.st_uid, st.st_gid, oct(st.st_mode), st.st_nlink,
                int(st.st_mtime) if st.st_mtime in (OLD, OLDER) else "now",
                st.st_size if stat.S_ISREG(st.st_mode) and name not in RESULTS else None)
    return found


def clear(top):
    """Remove it all."""
    for folder, dirs, files in os.walk(top, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in dirs:
            path = os.path.join(folder, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    os.rmdir(top)


def said(call, top):
    """What a call answers: its value or the name of its errno."""
    try:
        return call(top)
    except OSError as e:
        return errno.errorcode[e.errno]


def play(base, uid, gid, groups, cases):
    """Every case as that user, in a process that can become root again to furnish and look. What
    a call left as it was serves the next one."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, 0, 0)
    os.umask(0)
    results, top, stands, before = {}, base + "/top", None, None
    os.mkdir(base, 0o755)
    for key, there, call in cases(uid):
        if stands != there:
            if stands:
                clear(top)
            furnish(top, there, uid)
            before = left(top)
        os.seteuid(0 if key[1].startswith("set-uid") else uid)
        answer = said(call, top)
        os.seteuid(0)
        after = before if "access" in key[1] else left(top)  # that one only asks
        stands = there if after == before else "changed"
        results[key] = (answer, after)
    clear(base)
    return results


# --- what may differ ---------------------------------------------------------------------------


class Difference:
    """One case that went otherwise on the mount."""

    def __init__(self, user, key, local, mount):
        self.user, (self.kind, self.call, self.of) = user, key
        (self.local, self.left_local), (self.mount, self.left_mount) = local, mount

    def __str__(self):
        paths = {p: (self.left_local.get(p), self.left_mount.get(p))
                 for p in {**self.left_local, **self.left_mount}
                 if self.left_local.get(p) != self.left_mount.get(p)}
        return (f"{self.user}: {self.kind} {self.call} ({self.of}): local {self.local}, "
                f"mount {self.mount}; left (local, mount): {paths}")

    def answers(self, *pairs):
        """Is it one of these (local, mount)?"""
        return (self.local, self.mount) in pairs

    def refused(self, name):
        """The mount said so and changed nothing; the tmpfs let it pass or refused as well."""
        return self.mount == name and self.local in (None, "EACCES", "EPERM")

    def of_result(self):
        """Was it done to a result?"""
        return self.kind == "request" and self.call.endswith(RESULTS)


def special_bits(d):
    """Are the bits that the mount does not keep all the difference?"""
    def kept(found):
        return {path: (uid, gid, int(mode, 8) & ~(0o4000 if stat.S_ISDIR(int(mode, 8)) else 0o7000),
                       *rest) for path, (uid, gid, mode, *rest) in found.items()}

    return d.local == d.mount and kept(d.left_local) == kept(d.left_mount)


EXCEPTIONS = (
    ("files keep no set-uid, set-gid and sticky bit, folders no set-uid bit: the mount is nosuid, "
     "and no bit shall promise what it does not do", special_bits),
    ("there are no links and no special files: EPERM, also where a local file system would not "
     "even come to that", lambda d: d.call in ("link", "symlink", "mknod", "mkfifo")
     and d.refused("EPERM")),
    ("the kernel compares the kinds of cached names before it asks the daemon: refused either way",
     lambda d: d.answers(("EACCES", "EISDIR"), ("EPERM", "EISDIR"), ("EACCES", "ENOTDIR"),
                         ("EPERM", "ENOTDIR"))
     and (d.kind == "odd" or d.call in ("unlink folder", "rmdir file", "rename file onto folder",
                                        "rename folder onto file"))),
    ("the kernel walks through a closed folder by what it has cached, and itself judges dots, "
     "lengths and some flags: what it lets pass or calls by another name tells of no file",
     lambda d: d.kind == "odd" and d.local == "EACCES" and cached_walk(d)),
    ("every folder above must be searchable at each call, also by a way that was open before: the "
     "kernel names only the file, so a cached name and an open folder look the same",
     lambda d: d.kind == "held" and d.mount == "EACCES"
     and d.call not in ("read", "write", "ftruncate")),
    ("nobody writes results, root no more than others",
     lambda d: d.of_result() and d.user == "root"
     and (d.call.startswith("open") and d.answers((None, "EACCES"))
          or d.call.startswith("access") and d.answers((True, False)))),
    ("mode, owner, times and name of a result are its request's",
     lambda d: d.of_result() and d.call.split()[0] in ("chmod", "chown", "utime", "rename")
     and d.refused("EPERM")),
    ("results are no entries of their folder: its time does not change with them",
     lambda d: d.call in ("unlink x.out", "unlink x.status") and d.local == d.mount is None
     and without_folder(d.left_local) == without_folder(d.left_mount)),
    ("results follow their request's mode, owner and name, and go with it",
     lambda d: d.kind == "request" and d.local == d.mount is None
     and d.call in ("chmod x.json", "chown x.json", "rename x.json", "unlink x.json")
     and requests_alone(d.left_local) == requests_alone(d.left_mount)),
)


def cached_walk(d):
    """Did the kernel alone decide?"""
    dots = d.call.endswith((".", ". new"))
    return (dots and d.mount in ("EEXIST", "EBUSY", "EINVAL", "ENOTEMPTY")
            or d.call in ("stat .", "stat ..", "stat e1/..") and isinstance(d.mount, int)
            or len(d.call) > 255 and d.mount == "ENAMETOOLONG"
            or d.call.startswith(f"open {hex(os.O_NOATIME)}") and d.mount == "EPERM"
            or d.call.startswith(f"open {hex(os.O_PATH | os.O_NOFOLLOW)}") and d.mount == "EBADF")


def without_folder(found):
    """What was left, but for the folder itself."""
    return {path: what for path, what in found.items() if path != "d1"}


def requests_alone(found):
    """What was left, without results."""
    return {path: what for path, what in found.items() if not path.endswith(RESULTS)}


def differences(m, cases):
    """Play on both sides, with two players at a time."""
    local = m.dir + "/local"
    os.mkdir(local)
    ok(["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec,mode=1777", "tmpfs", local])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        played = {(user, base): pool.submit(as_user, 0, play, f"{base}/{user}", *who, cases)
                  for user, who in USERS.items() for base in (m.jobs, local)}
    ok(["umount", local])
    for user in USERS:
        on_mount, on_local = (played[user, base].result() for base in (m.jobs, local))
        equal(on_mount.keys(), on_local.keys(), "cases")
        for key, got in on_mount.items():
            if got != on_local[key]:
                yield Difference(user, key, on_local[key], got)


def check(cases, reasons):
    """No difference but those of EXCEPTIONS, and of those every one that belongs to this matrix."""
    need_root()
    with Mount("jobs_umask=0") as m:
        used, wrong = set(), []
        for d in differences(m, cases):
            why = [i for i, (_, applies) in enumerate(EXCEPTIONS) if applies(d)]
            used.update(why)
            if not why:
                wrong.append(str(d))
        assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:40])
        equal(used, reasons, "exceptions that still happen")


def test_differential__files_and_folders__as_on_a_tmpfs():
    """Users, modes, folders, calls: the same errors and the same left behind (K08-01, 02, 05)."""
    check(inert_cases, {0, 1, 2, 3, 4})


test_differential__files_and_folders__as_on_a_tmpfs.limit = 150  # 15 s alone
test_differential__files_and_folders__as_on_a_tmpfs.plain = True


def test_differential__finished_requests__results_as_read_only_files():
    """Results have the request's owner and read bits, and nobody's write bits (K08-01)."""
    check(request_cases, {5, 6, 7, 8})


test_differential__finished_requests__results_as_read_only_files.plain = True
