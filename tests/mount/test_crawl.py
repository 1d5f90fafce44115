"""Crawlers, backups and inspectors: harmless, and never stuck (K12)."""

import os
import subprocess

from harness import (DELAY, LONG_REQUEST, Mount, equal, need, ok, read, run, until, write)

COUNTERS = ("npufs_jobs_accepted_total", "npufs_jobs_started_total", "npufs_jobs_finished_total",
            "npufs_jobs_queued", "npufs_jobs_running", "npufs_requests_refused_total",
            "npufs_generation", "npufs_sessions", "npufs_files", "npufs_bytes",
            "npufs_device_calls_total")


def state(m):
    """Everything that reading must not change."""
    return {name: m.metric(name) for name in COUNTERS} | {"jobs": m.list(), "health": read(
        m.path + "/health").split("\n")[0], "models": read(m.path + "/models/echo/state")}


def furnish(m):
    """A session; a finished, a failed, an empty request, a plain file, in a folder too."""
    os.mkdir(m.path + "/sessions/s")
    os.mkdir(m.job("sub"))
    for folder in ("", "sub/"):
        m.put(folder + "good.txt", "text")
        m.send(folder + "bad.json", "{]")
        m.put(folder + "empty.json", "")
        m.put(folder + "plain.bin", "bytes")
        m.done(folder + "good")
        m.done(folder + "bad")


def test_crawlers__whole_tree__nothing_changes_and_none_hangs():
    """find, tar, grep -r, du, rsync over everything (K12-01)."""
    with Mount() as m:
        furnish(m)
        until(lambda: m.metric("npufs_bytes") == 32, 10, "results are counted")
        before = state(m)
        for command in (f"find {m.path} -xdev -ls", f"tar -C {m.path} -cf /dev/null .",
                        f"find {m.path} -type f -exec head -c1 {{}} +",
                        f"grep -r nothing-like-this {m.path} || true", f"du -a {m.path}",
                        f"ls -laR {m.path}", f"cp -a {m.path} {m.dir}/backup"):
            r = run(command, 20)
            equal((r.returncode, r.stderr), (0, ""), command)
        need("rsync")
        ok(["rsync", "-a", m.path + "/", m.dir + "/copy/"])
        equal(read(m.dir + "/copy/jobs/good.out"), "text\n", "the copy")
        equal(state(m), before, "state")
        fields = [x.split() for x in read("/proc/mounts").splitlines() if m.path in x]
        equal([f[2] for f in fields], ["fuse.npufs"], "type")


def test_tar__sizes__no_file_changed_as_it_was_read():
    """An archive of the tree can be unpacked again (K12-01)."""
    with Mount() as m:
        furnish(m)
        r = run(f"tar -C {m.path} -cf {m.dir}/a.tar jobs models manifests README")
        equal((r.returncode, r.stderr), (0, ""), "tar")
        os.mkdir(m.dir + "/un")
        ok(f"tar -C {m.dir}/un -xf {m.dir}/a.tar")
        for name in ("jobs/good.out", "jobs/bad.err", "jobs/sub/good.status", "README",
                     "models/echo/limits"):
            equal(read(f"{m.dir}/un/{name}"), read(f"{m.path}/{name}"), name)


def test_tar__looking_for_holes__every_byte():
    """Backups with tar -S go by the blocks: a text is no hole (K04-02, K12-01)."""
    with Mount() as m:
        furnish(m)
        names = ("README", "manifests/echo.json", "models/echo/schema", "sessions/s/length",
                 "sessions/s/owner", "jobs/good.out", "jobs/good.status", "jobs/bad.err")
        os.mkdir(m.dir + "/un")
        ok(f"tar -C {m.path} -cSf - {' '.join(names)} | tar -C {m.dir}/un -xf -")
        for name in names:
            st = os.stat(f"{m.path}/{name}")
            equal(st.st_blocks, -(-st.st_size // 512), name)
            equal(read(f"{m.dir}/un/{name}"), read(f"{m.path}/{name}"), name)


def test_restored__copied_in_again__results_are_refused_requests_run():
    """Copying a saved folder back runs its requests; results cannot be written."""
    with Mount() as m:
        os.mkdir(m.dir + "/save")
        write(m.dir + "/save/a.txt", "text")
        write(m.dir + "/save/a.out", "old\n")
        r = run(f"cp {m.dir}/save/a.txt {m.dir}/save/a.out {m.jobs}/")
        assert r.returncode == 1 and "a.out" in r.stderr, r
        equal(m.out("a"), "text\n", "output")


def test_inspectors__a_reader_waits__all_end():
    """lsof and fuser look at a mount with waiting readers (K12-04)."""
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        cat = subprocess.Popen(["cat", m.job("a.out")], stdout=subprocess.DEVNULL)
        until(lambda: m.metric("npufs_parked_requests") == 1, 10, "it waits")
        for command in (["lsof", m.path], ["fuser", "-vm", m.path],
                        ["sh", "-c", "ls -l /proc/*/fd > /dev/null 2>&1; true"]):
            need(command[0])
            run(command, 5)
        cat.kill()
        cat.wait()
        equal(m.state("a"), "running", "the job")


def test_locate__updatedb__harmless():
    """The nightly run walks the tree (K12-01)."""
    need("updatedb")
    with Mount() as m:
        furnish(m)
        until(lambda: m.metric("npufs_bytes") == 32, 10, "results are counted")
        before = state(m)
        ok(["updatedb", "-U", m.path, "-o", m.dir + "/db"])
        equal(state(m), before, "state")
