"""flock and fcntl locks work as on any file system (K17)."""

import fcntl
import os
import signal
import subprocess
import time

from harness import SLOW, Mount, equal, errno_of, need, run, until

HOLDER = ("import fcntl,sys,time; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX);"
          "print('held', flush=True); time.sleep(60)")


def test_flock__held_and_released__as_everywhere():
    """A lock file is held, waited for, and starts no job (K17-01)."""
    need("flock")
    with Mount() as m:
        lock = m.job("lk.json")
        holder = subprocess.Popen(["flock", lock, "sleep", "1"])
        until(lambda: os.path.exists(lock), 5, "the lock file")
        time.sleep(0.2)
        equal(run(["flock", "-n", lock, "true"]).returncode, 1, "while it is held")
        equal(run(["flock", "-w", "5", lock, "true"]).returncode, 0, "waiting for it")
        holder.wait(5 * SLOW)
        equal((m.started(), m.state("lk")), (0, "writing"), "jobs")


def test_flock__holder_killed__free():
    """A lock dies with its holder (K17-01)."""
    need("flock")
    with Mount() as m:
        lock = m.job("lk.json")
        holder = subprocess.Popen(["flock", "-o", lock, "sleep", "60"], start_new_session=True)
        until(lambda: os.path.exists(lock), 5, "the lock file")
        until(lambda: run(["flock", "-n", lock, "true"]).returncode == 1, 5, "held")
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        until(lambda: run(["flock", "-n", lock, "true"]).returncode == 0, 5, "free")


def test_fcntl__record_lock__excludes_and_ends_with_its_holder():
    """lockf is no worse (K17-01)."""
    with Mount() as m:
        m.put("lk.bin", "")
        holder = subprocess.Popen(["python3", "-c", HOLDER, m.job("lk.bin")], text=True,
                                  stdout=subprocess.PIPE)
        equal(holder.stdout.readline(), "held\n", "holder")
        with open(m.job("lk.bin"), "r+b") as f:
            assert errno_of(fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder.kill()
            holder.wait()
            until(lambda: not errno_of(fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB), 5, "free")
