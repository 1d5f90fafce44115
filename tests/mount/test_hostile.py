"""control/ against who may not: every kind of user by every operation on every node, races, a full disk of
the audit trail, a trail replaced by links, floods."""

import errno
import os
import re
import stat
import threading
import time

from harness import (BUILD, DELAY, LONG_REQUEST, SLOW, Mount, as_user, equal, errno_of, need_root, ok, read,
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
    counts = [re.match(r"(\d+) more were refused", r.get("message", "")) for r in all_of_them]
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
