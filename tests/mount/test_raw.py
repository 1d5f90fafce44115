"""control/memory and control/registers: the device's own bytes, for root, each access audited."""

import errno
import hashlib
import os
import threading

from harness import DELAY, LONG_REQUEST, Mount, as_user, equal, errno_of, need_root, read, until
from test_control import HELLO, NOBODY, approve, found, key, ok, BUILD

BASE, SIZE, MOST = 0x1000, 1 << 20, 65536  # of the software device; of one access
ID, STATUS, SUBMITS, SCRATCH = 0, 4, 8, 12


class Raw:
    """One of the two nodes, opened."""

    def __init__(self, m, node="memory"):
        self.fd = os.open(f"{m.path}/control/{node}", os.O_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def get(self, address, size):
        """The bytes there."""
        return os.pread(self.fd, size, address)

    def put(self, address, data):
        """How many were written."""
        return os.pwrite(self.fd, data, address)

    def number(self, address):
        """A register's value."""
        return int.from_bytes(self.get(address, 4), "little")


def test_raw__without_the_option__no_such_names_for_anybody():
    need_root()
    with Mount() as m:
        for name in ("memory", "registers"):
            equal(errno_of(os.stat, f"{m.path}/control/{name}"), errno.ENOENT)
            equal(errno_of(os.open, f"{m.path}/control/{name}", os.O_RDONLY), errno.ENOENT)
        assert "memory" not in os.listdir(m.path + "/control")


def test_raw__memory__written_and_read_again_and_audited_by_digest():
    need_root()
    data = b"a secret of the vendor's"
    digest = hashlib.sha256(data).hexdigest()
    with Mount("raw_access") as m, Raw(m) as memory:
        equal(memory.get(BASE + 7, 4), bytes(4))
        equal(memory.put(BASE + 7, data), len(data))
        equal(memory.get(BASE + 7, len(data)), data)
        said = f"raw access, {len(data)} bytes at 0x1007"
        intent, = found(m, command="memory write", decision="intent")
        equal(intent["message"], f"{said}, SHA-256 {digest}")
        equal((intent["uid"], intent["node"]), (0, "control/memory"))
        equal(len(found(m, command="memory write", decision="done")), 1)
        asked, = [r for r in found(m, command="memory read", decision="intent")
                  if r["message"] == said]
        done, = [r for r in found(m, command="memory read", decision="done")
                 if r["seq"] > asked["seq"]]
        equal(done["message"], f"{said}, SHA-256 {digest}")
        for name in os.listdir(m.store + "/audit"):
            with open(f"{m.store}/audit/{name}", "rb") as f:
                assert data not in f.read(), "the bytes are in the trail"


def test_raw__memory__bounds_of_an_access_and_of_the_device():
    need_root()
    with Mount("raw_access") as m, Raw(m) as memory:
        equal(memory.put(BASE, b"x" * (MOST + 5)), MOST, "the rest is for the next")
        equal(len(memory.get(BASE, MOST + 5)), MOST)
        equal(memory.get(BASE + MOST - 1, 2), b"x\0")
        equal(memory.put(BASE + SIZE - 1, b"e"), 1)
        for address, size in ((0, 1), (BASE - 1, 2), (BASE + SIZE, 1), (BASE + SIZE - 1, 2),
                              ((1 << 63) - 10, 4)):
            equal(errno_of(memory.get, address, size), errno.ERANGE, hex(address))
            equal(errno_of(memory.put, address, b"z" * size), errno.ERANGE, hex(address))
        equal(memory.get(BASE + SIZE - 1, 1), b"e")
        error = read(m.path + "/control/last_error")
        assert "error: ERANGE\n" in error and "device_error: OutOfRange\n" in error, error
        equal(len(found(m, command="memory write", decision="failed", why="OutOfRange")), 5)


def test_raw__registers__four_bytes_at_a_multiple_of_four():
    need_root()
    with Mount("raw_access") as m, Raw(m, "registers") as registers:
        equal(registers.get(ID, 4), b"SUPN")
        equal(registers.number(STATUS), 1)
        before = registers.number(SUBMITS)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        assert registers.number(SUBMITS) > before, "it counts"
        equal(registers.put(SCRATCH, b"\1\2\3\4"), 4)
        equal(registers.number(SCRATCH), 0x04030201)
        for address, size in ((0, 1), (0, 3), (0, 5), (0, 8), (2, 4), (1, 1)):
            equal(errno_of(registers.get, address, size), errno.EINVAL, (address, size))
            equal(errno_of(registers.put, address, b"z" * size), errno.EINVAL, (address, size))
        equal(errno_of(registers.get, 16, 4), errno.ERANGE)
        equal(errno_of(registers.put, ID, b"abcd"), errno.EINVAL)
        equal(registers.get(ID, 4), b"SUPN")


def test_raw__not_root__refused_also_with_roots_descriptor():
    """Operators have no business there; whoever opened it, who accesses counts."""
    need_root()
    with Mount("raw_access", "operator_group=1005") as m, Raw(m) as memory:
        for uid, groups in ((NOBODY, ()), (1001, (1005,))):
            for name in ("memory", "registers"):
                for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
                    equal(errno_of(as_user, uid, os.open, f"{m.path}/control/{name}", flags,
                                   groups=groups), errno.EACCES)
            equal(errno_of(as_user, uid, os.pread, memory.fd, 4, BASE, groups=groups),
                  errno.EACCES)
            equal(errno_of(as_user, uid, os.pwrite, memory.fd, b"evil", BASE, groups=groups),
                  errno.EACCES)
            for what in ("read", "write"):
                equal(len(found(m, uid=uid, command="memory " + what, decision="refused")), 1)
        equal(found(m, uid=1001, decision="intent"), [])
        equal(memory.get(BASE, 4), bytes(4), "nothing was written")


def test_raw__jobs_run__looked_at_between_inferences_and_not_changed():
    need_root()
    with Mount(DELAY, "raw_access") as m, Raw(m) as memory:
        m.put("a.json", LONG_REQUEST)
        until(lambda: m.status("a")["state"] == "running", 10, "running")
        equal(memory.get(BASE, 4), bytes(4))
        equal(m.status("a")["state"], "running")
        equal(errno_of(memory.put, BASE, b"x"), errno.EBUSY)
        m.put("b.json", HELLO)
        os.unlink(m.job("a.json"))
        equal(m.out("b"), "hello\n")


def test_raw__approvals__a_write_waits_for_them_and_a_read_does_not():
    need_root()
    with Mount("raw_access", "approvals=1") as m, Raw(m) as memory:
        pem = key(m, "anna")
        os.mkdir(m.store + "/approvers", 0o755)
        ok([BUILD + "/npufs-admin", "approver", "add", m.store, pem[:-4] + ".pub.pem"])
        equal(errno_of(memory.put, BASE, b"\xca\xfe"), errno.EINPROGRESS)
        equal(memory.get(BASE, 2), bytes(2))
        pending, = os.listdir(m.path + "/control/approvals")
        assert "memory write 0x1000 cafe" in read(f"{m.path}/control/approvals/{pending}")
        equal(approve(m, pending, pem).returncode, 0)
        equal(memory.get(BASE, 2), b"\xca\xfe")
        equal(errno_of(memory.put, BASE, b"x" * MOST), errno.E2BIG, "too long to be read and signed")


def test_raw__many_at_once__each_gets_its_own():
    """Reads and writes from several threads, while jobs are answered."""
    need_root()
    with Mount("raw_access") as m, Raw(m) as memory:
        bad = []

        def work(i):
            mine = bytes([i]) * 64
            for _ in range(5):
                while errno_of(memory.put, BASE + 64 * i, mine) == errno.EBUSY:
                    pass
                if memory.get(BASE + 64 * i, 64) != mine:
                    bad.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 6)]
        for t in threads:
            t.start()
        for i in range(20):
            m.put(f"a{i}.json", HELLO)
            equal(m.out(f"a{i}"), "hello\n")
        for t in threads:
            t.join()
        equal(bad, [])
