"""Messages: few, without content, and nobody waits for who reads them."""

import errno
import os
import re
import signal
import socket
import stat
import time

from harness import (U2, Mount, as_user, equal, errno_of, need_root, ok, read, took, until)


def test_log__one_condition_repeated__few_lines_and_no_prompt():
    """The log does not grow with the faults of users (K13-05)."""
    need_root()
    with Mount() as m:
        os.chmod(m.dir, 0o755)
        m.put("mine.txt", "text")
        for i in range(10000):
            errno_of(os.stat, m.job(f"missing{i}"))
            m.send("bad.json", '{"prompt":"SECRETPROMPT",}')

        def knock():
            return {errno_of(open, m.job("mine.txt")) for _ in range(10000)}

        equal(as_user(U2, knock), {errno.EACCES}, "refusals")
        m.stop()
        log = read(m.log)
        assert len(log.splitlines()) < 100, len(log.splitlines())
        assert "SECRET" not in log and "mine" not in log, log


def test_log__sessions_used_wrongly__few_lines_and_no_names():
    """Nor with what is written to sessions/ (K13-05)."""
    with Mount() as m:
        folder = m.path + "/sessions"
        m.put("a.json", '{"prompt":"x","session":"SECRETNAME"}')
        m.done("a")
        for words in (b"9\n", b"x\n", b"9999\n"):
            with open(folder + "/SECRETNAME/length", "wb", buffering=0) as f:
                for _ in range(2000):
                    assert errno_of(f.write, words), words
        for i in range(2000):
            errno_of(os.mkdir, folder + "/SECRET " + str(i))
            errno_of(os.rename, folder + "/SECRETNAME", folder + "/t")
            m.send("b.json", '{"prompt":"x","session":".SECRET"}')
        m.stop()
        log = read(m.log)
        assert len(log.splitlines()) < 100, len(log.splitlines())
        assert "SECRET" not in log, log


class Syslog:
    """In this mount namespace /dev is a folder with /dev/log, read only by lines()."""

    def __init__(self, m):
        need_root()
        dev = m.dir + "/dev"
        os.mkdir(dev)
        for name in ("null", "zero", "urandom", "random", "fuse"):
            os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.stat("/dev/" + name).st_rdev)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(dev + "/log")
        ok(["mount", "--bind", dev, "/dev"])

    def lines(self):
        """What has come."""
        found = []
        self.socket.setblocking(False)
        while errno_of(lambda: found.append(self.socket.recv(4096).decode())) == 0:
            pass
        return found


def test_log__syslog__form_of_others_and_nobody_waits_for_it():
    """A syslogd that does not read, is full or gone holds up nobody."""
    m = Mount("log=syslog", wait=False)
    try:
        syslog = Syslog(m)
        m.start()
        until(m.serves, 10, "the daemon serves")
        until(lambda: os.path.exists(m.path + "/ready"), 10, "ready")
        line = until(syslog.lines, 5, "a line")[0]
        # daemon.info; RFC 3164's time; the tag
        assert re.fullmatch(r"<30>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d npufs\[%d\]: ready" % m.pid,
                            line), line
        while errno_of(syslog_full, m.dir + "/dev/log") == 0:
            pass
        with took(5, "with a full socket"):
            for _ in range(20):
                os.kill(m.pid, signal.SIGHUP)
                time.sleep(0.01)
                read(m.path + "/health")
        until(lambda: m.metric("npufs_log_dropped_total") > 0, 5, "lines left out")
        syslog.socket.close()
        os.unlink(m.dir + "/dev/log")
        os.kill(m.pid, signal.SIGHUP)
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "without a syslogd")
        m.stop()
    finally:
        m.clear()


def syslog_full(path):
    """One more datagram, or EAGAIN."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        s.sendto(b"x" * 1000, path)
