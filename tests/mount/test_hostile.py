"""control/ against who may not: every kind of user by every operation on every node, races, a full disk of
the audit trail, a trail replaced by links, floods."""

import errno
import os
import re
import stat
import threading
import time

from harness import (BUILD, DELAY, LONG_REQUEST, SLOW, TOP, Mount, as_user, equal, errno_of, need_root, ok, read,
                     run, took, until)
from test_control import HELLO, NOBODY, command, found, key, records, write

OPERATORS, TRACERS = 1005, 1006
GROUPS = (f"operator_group={OPERATORS}", f"trace_group={TRACERS}")
ROOT, OP, TR = "root", "operator", "tracer"

# Who is asked as: uid (its group has the same number), supplementary groups, roles.
USERS = {
    "nobody": (NOBODY, (), set()),
    "operator by its group": (OPERATORS, (), {OP}),
    "operator by another group": (1001, (2000, OPERATORS), {OP}),
    "tracer by its group": (TRACERS, (), {TR}),
    "tracer by another group": (1002, (TRACERS,), {TR}),
    "both": (1003, (OPERATORS, TRACERS), {OP, TR}),
    "a user of root's group": (1004, (0,), set()),
}

# What each node is, and whose besides root's. The approval's own name comes in place of ID.
DIR, COMMAND, SHOWN, RAW = "dir", "command", "shown", "raw"
NODES = {
    "": (DIR, OP), "operations": (DIR, OP), "approvals": (DIR, OP), "trace": (DIR, TR),
    "audit": (SHOWN, ROOT), "last_error": (SHOWN, OP), "operations/1": (SHOWN, OP),
    "trace/state": (SHOWN, TR), "trace/last.json": (SHOWN, TR),
    "memory": (RAW, ROOT), "registers": (RAW, ROOT),
    "trace/start": (COMMAND, TR), "trace/stop": (COMMAND, TR), "approvals/ID": (COMMAND, OP),
    **{n: (COMMAND, ROOT) for n in ("faults", "reset_config", "reset_device")},
    **{n: (COMMAND, OP) for n in ("configure", "drain", "load", "parallel", "reset_ccu", "unload", "unlock")},
}


class Node:
    """A node, and what somebody with these roles may expect of it."""

    def __init__(self, name, roles):
        self.name = name
        self.kind, role = NODES[name]
        self.mine = role in roles
        self.passes = not name and TR in roles
        self.parent = name.rpartition("/")[0]
        parent_role = NODES[self.parent][1]
        self.listed = parent_role in roles  # its folder can be read
        self.found = self.listed or not name or not self.parent and role == TR and TR in roles
        if self.parent and not Node(self.parent, roles).found:
            self.found = False

    def reads(self):
        """What reading it gives."""
        return 0 if self.mine else errno.EACCES

    def searches(self):
        """What a look at whether it can be searched gives: tracers pass control/ itself."""
        return 0 if self.kind == DIR and (self.mine or self.passes) else errno.EACCES

    def writes(self, allowed=0):
        """What an attempt to write gives."""
        return allowed if self.mine and self.kind in (COMMAND, RAW) else errno.EACCES

    def changes(self):
        """What an attempt to change its folder gives."""
        return errno.EPERM if self.listed else errno.EACCES


def opens(flags):
    """Open and close."""
    return lambda p, _: os.close(os.open(p, flags))


def reads(p, _):
    """A whole file, as cat does."""
    fd = os.open(p, os.O_RDONLY)
    try:
        os.read(fd, 4096)
    finally:
        os.close(fd)


def accesses(want):
    """access(2), which Python makes a bool of."""
    def go(p, _):
        if not os.access(p, want):
            raise PermissionError(errno.EACCES, "access")
    return go


def beside(p):
    """A name that is not there in the folder of a node."""
    return os.path.dirname(p) + "/new"


# An operation on a node (its path, and a file of the user's own) and what it should give. None: the
# kernel answers by itself, or what it does is tested elsewhere.
OPERATIONS = {
    "stat": (lambda p, _: os.stat(p), lambda n: 0),
    "access F": (accesses(os.F_OK), lambda n: 0),
    "access R": (accesses(os.R_OK), Node.reads),
    "access W": (accesses(os.W_OK), Node.writes),
    "access X": (accesses(os.X_OK), Node.searches),
    "open r": (opens(os.O_RDONLY), Node.reads),
    "open w": (opens(os.O_WRONLY), lambda n: errno.EISDIR if n.kind == DIR else n.writes()),
    "open rw": (opens(os.O_RDWR), lambda n: errno.EISDIR if n.kind == DIR else n.writes()),
    "open w trunc": (opens(os.O_WRONLY | os.O_TRUNC), lambda n: errno.EISDIR if n.kind == DIR else n.writes()),
    "open path": (opens(os.O_PATH), lambda n: 0),
    "read": (reads, lambda n: errno.EISDIR if n.kind == DIR and n.mine else n.reads()),
    "write": (lambda p, _: write(p, "no such words\n"),
              lambda n: errno.EISDIR if n.kind == DIR else n.writes(errno.EINVAL)),
    "truncate": (lambda p, _: os.truncate(p, 0), lambda n: errno.EISDIR if n.kind == DIR else n.writes()),
    "truncate to 5": (lambda p, _: os.truncate(p, 5),
                      lambda n: errno.EISDIR if n.kind == DIR else n.writes(errno.EINVAL)),
    "chmod": (lambda p, _: os.chmod(p, 0o777), lambda n: n.writes(errno.EPERM)),
    "chown": (lambda p, _: os.chown(p, os.getuid(), -1), lambda n: n.writes(errno.EPERM)),
    "chgrp": (lambda p, _: os.chown(p, -1, os.getgid()), lambda n: n.writes(errno.EPERM)),
    "utime": (lambda p, _: os.utime(p, (1, 1)), lambda n: n.writes(errno.EPERM)),
    "setxattr": (lambda p, _: os.setxattr(p, "user.x", b"1"),
                 lambda n: errno.EOPNOTSUPP if n.mine else errno.EACCES),
    "removexattr": (lambda p, _: os.removexattr(p, "user.x"),
                    lambda n: errno.EOPNOTSUPP if n.mine else errno.EACCES),
    "list": (lambda p, _: os.listdir(p), lambda n: n.reads() if n.kind == DIR else errno.ENOTDIR),
    "unlink": (lambda p, _: os.unlink(p), lambda n: errno.EISDIR if n.kind == DIR else n.changes()),
    "rmdir": (lambda p, _: os.rmdir(p), lambda n: n.changes() if n.kind == DIR else errno.ENOTDIR),
    "rename out": (lambda p, own: os.rename(p, own + "2"), Node.changes),
    "rename within": (lambda p, _: os.rename(p, beside(p)), Node.changes),
    "rename in": (lambda p, own: os.rename(own, beside(p)), Node.changes),
    "mkdir": (lambda p, _: os.mkdir(beside(p)), Node.changes),
    "mknod": (lambda p, _: os.mknod(beside(p), stat.S_IFIFO | 0o600), Node.changes),
    "symlink": (lambda p, _: os.symlink("/etc/passwd", beside(p)), Node.changes),
    "link in": (lambda p, own: os.link(own, beside(p)), Node.changes),
    "link out": (lambda p, own: os.link(p, own + "2"),
                 lambda n: errno.EPERM if n.kind == DIR or n.mine else errno.EACCES),
    "create": (lambda p, _: os.close(os.open(beside(p), os.O_CREAT | os.O_EXCL | os.O_WRONLY)), Node.changes),
    "create over": (lambda p, _: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
                    lambda n: errno.EEXIST),
}
# Of a folder itself these are about what is beside it in the mount's root, which is not control/.
OF_PARENT = {"unlink", "rmdir", "rename out", "rename within", "rename in", "mkdir", "mknod", "symlink",
             "link in", "create"}
# By the kernel alone, where the name was found.
KERNEL = {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EOPNOTSUPP, errno.EINVAL}
LINK_OF_DIR = "link out"


def want(node, operation):
    """The errno."""
    if not node.found:
        return errno.EACCES
    return OPERATIONS[operation][1](node)


def attempts():
    """Every node with every operation."""
    for name in NODES:
        for operation in OPERATIONS:
            if name or operation not in OF_PARENT:
                yield name, operation


def try_all(base, pending, own):
    """Make every attempt; what each gave."""
    with open(own, "wb"):
        pass
    answers = {}
    for name, operation in attempts():
        path = (base + "/" + name.replace("ID", pending)).rstrip("/")
        answers[name, operation] = errno_of(OPERATIONS[operation][0], path, own)
    return answers


def told(m, uid):
    """Attempts of that user that were refused, as far as the trail tells: records, and counts in the next."""
    all_of_them = records(m)
    counts = [re.match(r"(\d+) more came before", r.get("message", "")) for r in all_of_them]
    return (sum(r.get("uid") == uid and r["decision"] == "refused" for r in all_of_them) +
            sum(int(c[1]) for c in counts if c))


def prepare(m):
    """One operation that is over and one that waits, whose name is returned."""
    equal(command(m, "parallel", "maybe: so"), errno.EINVAL)
    equal(command(m, "unload", "now: waits for ever"), errno.EINPROGRESS)
    pending, = os.listdir(m.path + "/control/approvals")
    return pending


def warm(m):
    """Everything of control/ in the kernel's caches, by root."""
    ok(f"ls -lR {m.path}/control >/dev/null; cat {m.path}/control/* {m.path}/control/*/* >/dev/null 2>&1; true")


def check_user(m, who, pending):
    """Cold, then warm: the same answers, and all that was refused in the trail."""
    uid, groups, roles = USERS[who]
    own = m.job(f"u{uid}.tmp")
    for caches in ("cold", "warm"):
        before = told(m, uid)
        if caches == "warm":
            warm(m)
        got = as_user(uid, try_all, m.path + "/control", pending, own, groups=groups)
        bad = [f"{who} {caches}: {o} {n}: {errno.errorcode.get(got[n, o], 0)}, not "
               f"{errno.errorcode.get(want(Node(n, roles), o), 0)}"
               for n, o in attempts() if want(Node(n, roles), o) not in (None, got[n, o])]
        assert not bad, "\n".join(bad)
        refused = sum(e in (errno.EACCES, errno.EPERM) and not (o == LINK_OF_DIR and NODES[n][0] == DIR)
                      for (n, o), e in got.items())
        until(lambda: os.listdir(m.path + "/control") and told(m, uid) >= before + refused, 15,
              f"{who} {caches}: {refused} refusals told")
    equal(found(m, uid=uid, decision="intent"), [], who)
    os.unlink(own)


def check_unharmed(m, pending):
    """Nothing of it did anything."""
    equal(os.listdir(m.path + "/control/approvals"), [pending])
    m.put("after.json", HELLO)
    equal(m.out("after"), "hello\n")
    equal(m.status("after")["generation"], "1")
    for node in ("load", "trace/start", "audit"):
        assert stat.S_ISREG(os.stat(f"{m.path}/control/{node}").st_mode)


def hostile(*names):
    """Those users, each by every operation on every node."""
    need_root()
    with Mount("raw_access", "approvals=2", "fault=Wait@1000000:nan", *GROUPS) as m:
        pending = prepare(m)
        for who in names:
            check_user(m, who, pending)
        check_unharmed(m, pending)


def test_hostile__ordinary_users__refused_everywhere_cold_and_warm():
    hostile("nobody", "a user of root's group")


def test_hostile__operators__their_nodes_and_no_others_cold_and_warm():
    hostile("operator by its group", "operator by another group")


def test_hostile__tracers__the_trace_and_no_other_name_cold_and_warm():
    hostile("tracer by its group", "tracer by another group")


def test_hostile__in_both_groups__what_either_may_and_no_more():
    hostile("both")


def test_hostile__no_groups_named__nobody_has_a_role():
    """Groups of these numbers, and the one that stands for none, are not enough."""
    need_root()
    with Mount() as m:
        for groups in ((), (OPERATORS, TRACERS, 0), (2**32 - 2,)):
            for name in ("", "/load", "/trace", "/trace/state", "/unlock"):
                equal(errno_of(as_user, 1001, os.stat if name else os.listdir, m.path + "/control" + name,
                               groups=groups), errno.EACCES, name)


# --- callables/ --------------------------------------------------------------------------------

# Everybody may look at these; nobody below may do more, nor read an image or how to close them.
CALLABLES = {"": DIR, "add.id": SHOWN, "usage": SHOWN, "add.img": COMMAND, "close": COMMAND}
LOOKS = {"stat": 0, "access F": 0, "open path": 0, "create over": errno.EEXIST}
READS = {"access R": 0, "open r": 0, "read": 0}
OF_FILE = {**LOOKS, "list": errno.ENOTDIR, "rmdir": errno.ENOTDIR}
OF_FOLDER = {**LOOKS, **READS, "access X": 0, "list": 0, "link out": errno.EPERM, **dict.fromkeys(
    ("read", "open w", "open rw", "open w trunc", "write", "truncate", "truncate to 5"), errno.EISDIR)}
OF_CALLABLES = {DIR: OF_FOLDER, SHOWN: {**OF_FILE, **READS}, COMMAND: OF_FILE}


def want_of_callable(name, operation):
    """What somebody without a role is answered."""
    return OF_CALLABLES[CALLABLES[name]].get(operation, errno.EACCES)


def try_callables(base, own):
    """Every attempt at callables/; what each gave."""
    with open(own, "wb"):
        pass
    return {(name, operation): errno_of(OPERATIONS[operation][0], f"{base}/{name}".rstrip("/"), own)
            for name in CALLABLES for operation in OPERATIONS if name or operation not in OF_PARENT}


def test_hostile__callables__nothing_changed_and_every_attempt_told_cold_and_warm():
    need_root()
    with Mount(*GROUPS) as m:
        base, own = m.path + "/callables", m.job("own.tmp")
        ok([BUILD + "/npufs-admin", "callable", "build", f"{TOP}/examples/callables/add.json",
            m.dir + "/add.img"])
        ok(["cp", m.dir + "/add.img", base + "/add.img"])
        for uid, groups in ((NOBODY, ()), (1002, (TRACERS,))):
            for caches in ("cold", "warm"):
                before = told(m, uid)
                if caches == "warm":
                    ok(f"ls -lR {base} >/dev/null; cat {base}/* >/dev/null")
                got = as_user(uid, try_callables, base, own, groups=groups)
                bad = [f"{uid} {caches}: {o} {n}: {errno.errorcode.get(e, 0)}, not "
                       f"{errno.errorcode.get(want_of_callable(n, o), 0)}"
                       for (n, o), e in got.items() if e != want_of_callable(n, o)]
                assert not bad, "\n".join(bad)
                # That a file cannot be executed is the kernel's own answer.
                refused = sum(e == errno.EACCES and o != "access X" for (_, o), e in got.items())
                until(lambda b=before, u=uid, r=refused: os.listdir(m.path + "/control") and
                      told(m, u) >= b + r, 15, f"{uid} {caches}: {refused} refusals told")
            os.unlink(own)
        equal(read(base + "/add.id"), "0\n")
        equal(sorted(os.listdir(base)), ["add.id", "add.img", "close", "usage"])


def test_hostile__callables__what_roots_attempts_cannot_change_is_told():
    need_root()
    with Mount() as m:
        base = m.path + "/callables/"
        ok([BUILD + "/npufs-admin", "callable", "build", f"{TOP}/examples/callables/add.json",
            m.dir + "/add.img"])
        ok(["cp", m.dir + "/add.img", base + "add.img"])
        attempts_ = {"mkdir": (errno.EPERM, os.mkdir, base + "x"),
                     "symlink": (errno.EPERM, os.symlink, "/etc", base + "x"),
                     "rename": (errno.EPERM, os.rename, base + "add.img", base + "x.img"),
                     "setattr": (errno.EPERM, os.chown, base + "add.img", 1001, -1),
                     "open": (errno.EBUSY, os.open, base + "add.img", os.O_WRONLY),
                     "unlink": (errno.EBUSY, os.unlink, base + "add.img"),
                     "create": (errno.EINVAL, write_new, base + "x.txt")}
        for what, (want_errno, function, *args) in attempts_.items():
            equal(errno_of(function, *args), want_errno, what)
            until(lambda w=what: found(m, command=w, why="unchangeable", uid=0), 5, f"{what} is told")


def write_new(path):
    """As the shell's >."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


# --- modes and roles ---------------------------------------------------------------------------


def test_hostile__modes__tell_who_may():
    need_root()
    with Mount("raw_access", "fault=Wait@1000000:nan", *GROUPS) as m:
        shown = {"": (0o750, OPERATORS), "load": (0o660, OPERATORS), "unlock": (0o660, OPERATORS),
                 "reset_ccu": (0o660, OPERATORS), "last_error": (0o440, OPERATORS),
                 "operations": (0o750, OPERATORS), "trace": (0o750, TRACERS),
                 "trace/start": (0o660, TRACERS), "trace/last.json": (0o440, TRACERS),
                 "reset_device": (0o600, 0), "reset_config": (0o600, 0), "faults": (0o600, 0),
                 "audit": (0o400, 0), "memory": (0o600, 0), "registers": (0o600, 0)}
        for name, want_mode in shown.items():
            st = os.stat(f"{m.path}/control/{name}")
            equal((stat.S_IMODE(st.st_mode), st.st_gid), want_mode, name)
            equal(st.st_uid, 0, name)


def test_hostile__unknown_group__refused_before_anything_is_mounted():
    need_root()
    for option in ("operator_group", "trace_group"):
        for group in ("no-such-group", "4294967295", "-5"):
            m = Mount(f"{option}={group}", wait=False)
            r = run(m.command())
            m.clear()
            equal(r.returncode, 1, r.stderr)
            assert f"{option}={group}: there is no such group" in r.stderr, r.stderr


def as_operator(function, *args):
    """The errno that an operator gets, by a supplementary group."""
    return errno_of(as_user, 1001, function, *args, groups=(OPERATORS,))


def test_hostile__operator__does_its_work_and_sees_all_operations():
    need_root()
    with Mount(*GROUPS) as m:
        control = m.path + "/control/"
        equal(command(m, "parallel", "maybe: so"), errno.EINVAL, "root's own mistake")
        equal(as_operator(write, control + "reset_ccu", "now: by an operator\n"), 0)
        done, = found(m, command="reset_ccu", decision="done")
        equal((done["uid"], done["message"]), (1001, "by an operator"))
        for node, line in (("unload", "now: x\n"), ("configure", "now: x\n"), ("drain", "now: x\n"),
                           ("load", "echo: x\n"), ("parallel", "off: x\n"), ("unlock", "now: x\n")):
            equal(as_operator(write, control + node, line), 0, node)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        assert "written: maybe: so" in as_user(1001, read, control + "last_error", groups=(OPERATORS,))
        assert "uid: 0" in as_user(1001, read, control + "operations/1", groups=(OPERATORS,))
        for node in ("reset_device", "reset_config"):
            equal(as_operator(write, control + node, "now: more\n"), errno.EACCES, node)


def test_hostile__tracer__traces_and_nothing_else():
    need_root()
    with Mount(*GROUPS) as m:
        trace = m.path + "/control/trace/"

        def as_tracer(function, *args):
            return as_user(1002, function, *args, groups=(TRACERS,))
        equal(as_tracer(write, trace + "start", "60 1000000: slow answers\n"), None)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(as_tracer(write, trace + "stop", "now: enough\n"), None)
        assert as_tracer(read, trace + "state").startswith("stopped\n")
        assert '"compute"' in as_tracer(read, trace + "last.json")
        equal(sorted(as_tracer(os.listdir, trace)), ["last.json", "start", "state", "stop"])
        equal(as_operator(os.listdir, trace), errno.EACCES)
        equal(as_operator(write, trace + "start", "60 1000000: x\n"), errno.EACCES)


def test_hostile__descriptors_of_others__the_writer_counts():
    """An operator's descriptor is no operator's rights, nor a tracer's an operator's."""
    need_root()
    with Mount(*GROUPS) as m:
        fds = {n: os.open(f"{m.path}/control/{n}", os.O_RDWR) for n in ("reset_ccu", "trace/start")}
        for uid, groups in ((NOBODY, ()), (1002, (TRACERS,))):
            equal(errno_of(as_user, uid, os.write, fds["reset_ccu"], b"now: mine\n", groups=groups),
                  errno.EACCES)
        equal(as_operator(os.write, fds["trace/start"], b"1 100000: mine\n"), errno.EACCES)
        folder = os.open(m.path + "/control", os.O_RDONLY)
        equal(errno_of(as_user, NOBODY, lambda: os.listdir(f"/proc/self/fd/{folder}")), errno.EACCES)
        equal(errno_of(as_user, NOBODY, lambda: os.open("load", os.O_WRONLY, dir_fd=folder)), errno.EACCES)
        for fd in [folder, *fds.values()]:
            os.close(fd)
        equal(found(m, decision="intent"), [])


def test_hostile__escape_sequences__reach_nobodys_terminal():
    need_root()
    with Mount(*GROUPS) as m:
        line = "now: \x1b]0;owned\x07\x1b[2J\n"
        equal(as_operator(write, m.path + "/control/drain", line), errno.EINVAL)
        for name in ("last_error", "operations/1", "audit"):
            text = read(f"{m.path}/control/{name}")
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", text), (name, text)


# --- storms and withdrawing --------------------------------------------------------------------


def test_hostile__storm_of_resets__locked_until_an_operator_unlocks():
    need_root()
    with Mount(*GROUPS) as m:
        for i in range(4):
            equal(command(m, "reset_ccu", f"now: {i}"), 0)
            equal(command(m, "reset_config", f"now: {i}"), 0)
        assert "resets:" not in read(m.path + "/health")
        for node in ("reset_device", "reset_ccu", "reset_device"):
            equal(command(m, node, "now: again"), errno.EPERM)
        assert "\nresets: locked, " in read(m.path + "/health"), read(m.path + "/health")
        error = read(m.path + "/control/last_error")
        assert "error: EPERM\n" in error and "control/unlock" in error, error
        equal(len(found(m, decision="refused", why="storm")), 3)
        equal(errno_of(as_user, 1002, write, m.path + "/control/unlock", "now: x\n", groups=(TRACERS,)),
              errno.EACCES)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(command(m, "reset_device", "now: still"), errno.EPERM)
        equal(as_operator(write, m.path + "/control/unlock", "now: a cable\n"), 0)
        assert "resets:" not in read(m.path + "/health")
        unlocked, = found(m, command="unlock", decision="done")
        equal((unlocked["uid"], unlocked["message"]), (1001, "a cable"))
        equal(command(m, "reset_device", "now: once more"), 0)


def test_hostile__withdrawing__by_rm_of_who_asked_or_root():
    need_root()
    with Mount("approvals=1", *GROUPS) as m:
        approvals = m.path + "/control/approvals/"
        pem = key(m, "anna")
        os.mkdir(m.store + "/approvers", 0o755)
        ok([BUILD + "/npufs-admin", "approver", "add", m.store, pem[:-4] + ".pub.pem"])

        def ask():
            before = os.listdir(approvals)
            equal(as_operator(write, m.path + "/control/unload", "now: maintenance\n"), errno.EINPROGRESS)
            pending, = set(os.listdir(approvals)) - set(before)
            return pending
        first, second = ask(), ask()
        equal(errno_of(as_user, 1003, os.unlink, approvals + first, groups=(OPERATORS,)), errno.EPERM)
        equal(errno_of(as_user, NOBODY, os.unlink, approvals + first), errno.EACCES)
        equal(sorted(os.listdir(approvals)), sorted([first, second]))
        equal(as_operator(os.unlink, approvals + first), 0)
        os.unlink(approvals + second)
        equal(os.listdir(approvals), [])
        equal([(r["uid"], r["message"]) for r in found(m, command="withdraw", why="withdrawn")],
              [(1001, first), (0, second)])
        equal(errno_of(os.unlink, approvals + first), errno.ENOENT)
        equal(run([BUILD + "/npufs-admin", "approve", m.path, first, "--key", pem]).returncode, 1)
        third = ask()
        ok([BUILD + "/npufs-admin", "approve", m.path, third, "--key", pem])
        assert read(m.path + "/health").startswith("draining\n")


# --- races -------------------------------------------------------------------------------------


def answers(m, stems):
    """Of each job how it ended, when all have."""
    return [m.done(stem, 30)["state"] for stem in stems]


def test_hostile__resets_while_jobs_come__each_is_answered_once():
    need_root()
    with Mount() as m:
        stems = [f"j{i}" for i in range(300)]

        def submit():
            for stem in stems:
                m.put(stem + ".json", HELLO)
        writer = threading.Thread(target=submit)
        writer.start()
        for i in range(4):
            equal(command(m, "reset_ccu", f"now force: {i}"), 0)
            equal(command(m, "reset_config", f"now force: {i}"), 0)
        writer.join()
        states = answers(m, stems)
        equal(len(states), 300)
        for stem, state in zip(stems, states):
            if state == "done":
                equal(m.out(stem), "hello\n")
            else:
                equal((state, errno_of(m.out, stem)), ("failed", errno.EIO), stem)
        until(lambda: m.metric("npufs_jobs_finished_total") == 300, 5, "each ended once")
        until(lambda: read(m.path + "/health").startswith("ready\n"), 10, "ready")
        m.put("after.json", HELLO)
        equal(m.out("after"), "hello\n")


def test_hostile__unload_while_a_job_runs__busy_or_the_job_is_told():
    need_root()
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        m.put("b.json", HELLO)
        m.runs("a")
        equal(command(m, "unload", "now: politely"), errno.EBUSY)
        equal(m.state("a"), "running")
        equal(command(m, "unload", "now force: at once"), 0)
        equal(errno_of(m.out, "a"), errno.EIO)
        assert read(m.path + "/health").startswith("draining\n")
        m.put("c.json", HELLO)
        equal(m.state("c"), "queued")
        equal(command(m, "configure", "now: on again"), 0)
        equal(m.out("c"), "hello\n")
        assert m.done("b")["state"] in ("done", "failed")
        until(lambda: m.metric("npufs_jobs_finished_total") == 3, 5, "each ended once")


# --- the trail's disk --------------------------------------------------------------------------


def test_hostile__trail_on_a_full_disk__nothing_done_jobs_go_on_and_it_recovers():
    need_root()
    m = Mount(*GROUPS)
    audit = m.store + "/audit"
    os.mkdir(audit, 0o700)
    ok(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", audit])
    try:
        with m:
            equal(command(m, "reset_ccu", "now: there is room"), 0)
            with open(audit + "/filler", "wb", buffering=0) as f:
                equal(errno_of(lambda: [f.write(b"x" * 4096) for _ in range(100)]), errno.ENOSPC)
            until(lambda: command(m, "load", "nothing: to fill what is left") == errno.EIO, 10, "full")
            for node, line in (("reset_ccu", "now: unseen"), ("unload", "now: unseen"),
                               ("trace/start", "9 100000: unseen"), ("unlock", "now: unseen")):
                equal(command(m, node, line), errno.EIO, node)
            assert "nothing was done" in read(m.path + "/control/last_error")
            assert "\naudit: cannot be written" in read(m.path + "/health")
            equal(errno_of(as_user, NOBODY, os.listdir, m.path + "/control"), errno.EACCES)
            m.put("a.json", HELLO)
            equal(m.out("a"), "hello\n")
            equal(m.status("a")["generation"], "2", "one reset, and no other")
            equal(read(m.path + "/control/trace/state"), "none\n")
            os.unlink(audit + "/filler")
            equal(command(m, "reset_ccu", "now: room again"), 0)
            assert "\naudit:" not in read(m.path + "/health")
            m.stop()
            ok([BUILD + "/npufs-admin", "audit", "verify", m.store])
            m.start()
    finally:
        run(["umount", "-l", audit])


def test_hostile__trail_replaced_by_links__refused_and_never_followed():
    need_root()
    with Mount() as m:
        audit, away, decoy = m.store + "/audit", m.dir + "/away", m.dir + "/decoy"
        equal(command(m, "configure", "now: a first record"), 0)
        with open(decoy, "wb"):
            pass
        for name, target in (("", away), ("/00000001.jsonl", decoy), ("/00000001.jsonl", away)):
            os.rename(audit + name, away)
            os.symlink(target, audit + name)
            equal(command(m, "reset_ccu", "now: unseen"), errno.EIO, name)
            equal(errno_of(as_user, NOBODY, os.listdir, m.path + "/control"), errno.EACCES)
            if name:
                equal(errno_of(read, m.path + "/control/audit"), errno.ELOOP)
            os.unlink(audit + name)
            os.rename(away, audit + name)
            equal(command(m, "configure", "now: back"), 0)
        os.unlink(audit + "/head")
        os.symlink(decoy, audit + "/head")
        equal(command(m, "configure", "now: the head is made anew"), 0)
        assert not os.path.islink(audit + "/head")
        equal(os.stat(decoy).st_size, 0)
        equal(found(m, command="reset_ccu"), [])
        m.stop()
        ok([BUILD + "/npufs-admin", "audit", "verify", m.store])
        m.start()


# --- floods ------------------------------------------------------------------------------------

FLOOD = 10000


def flood(base):
    """Many attempts of several kinds; all are refused."""
    kinds = (lambda: os.listdir(base), lambda: os.open(base + "/reset_device", os.O_WRONLY),
             lambda: os.mkdir(base + "/x"), lambda: os.stat(base + "/trace/state"),
             lambda: os.rename(base + "/load", base + "/unload"))
    return sum(errno_of(kinds[i % len(kinds)]) == errno.EACCES for i in range(FLOOD))


def test_hostile__flood_of_refused_attempts__bounded_and_nobody_waits():
    need_root()
    with Mount(*GROUPS) as m:
        counts = []
        child = threading.Thread(
            target=lambda: counts.append(as_user(NOBODY, flood, m.path + "/control")))
        with took(60, "the flood"):
            child.start()
            n = 0
            while child.is_alive():
                as_user(1007, m.put, f"u{n}.json", HELLO)
                with took(2, "another user's job"):
                    equal(as_user(1007, m.out, f"u{n}"), "hello\n")
                with took(0.5, "health"):
                    read(m.path + "/health")
                with took(2, "an operator's command"):
                    equal(command(m, "trace/stop", "now: in spite of it"), 0) if n < 20 else None
                n += 1
            child.join()
        equal(counts, [FLOOD], "every one of them refused")
        assert n >= 1
        until(lambda: os.listdir(m.path + "/control") and told(m, NOBODY) >= FLOOD, 20, "all told")
        mine = found(m, uid=NOBODY)
        assert len(mine) < 100 + 2 * 60 * SLOW + 10, len(mine)
        size = sum(e.stat().st_size for e in os.scandir(m.store + "/audit"))
        assert size < 1 << 20, size
        assert os.path.getsize(m.log) < 1 << 16, os.path.getsize(m.log)
