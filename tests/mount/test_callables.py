"""callables/: resident device programs as files, and the jobs that launch them."""

import array
import errno
import hashlib
import json
import math
import os
import re
import stat
import struct

from harness import (BUILD, DELAY, LONG_REQUEST, SANITIZED, TOP, U1, Mount, Skip, as_user, equal,
                     errno_of, need_root, ok, read, run, took, until, write)
from test_control import command, found, records

LIMIT = 8192
X, Y = [1, 2, 3, 4], [10, 20, 30, 40]


ADMIN = os.path.join(BUILD, "npufs-admin")


def image(m, name):
    """An image of an example, built beside the mount; its path."""
    path = f"{m.dir}/{name}.img"
    if not os.path.exists(path):
        ok([ADMIN, "callable", "build", f"{TOP}/examples/callables/{name}.json", path])
    return path


def put(m, name, example="add"):
    """cp of an example's image to callables/NAME.img; the command's result."""
    return run(["cp", image(m, example), f"{m.path}/callables/{name}.img"])


def begun(m, name):
    """callables/NAME.img, open to be written."""
    return os.open(f"{m.path}/callables/{name}.img", os.O_WRONLY | os.O_CREAT, 0o644)


def show(m, name):
    """A file of callables/."""
    return read(f"{m.path}/callables/{name}")


def usage(m):
    """callables/usage as a dictionary."""
    return dict(line.split(": ", 1) for line in show(m, "usage").splitlines())


def vector(name, data):
    """A float tensor of a request."""
    return {"name": name, "datatype": "FP32", "shape": [len(data)], "data": data}


def add(callable_, **more):
    """A request that adds X and Y."""
    return json.dumps({"callable": callable_, "inputs": [vector("x", X), vector("y", Y)],
                       "outputs": [{"name": "z", "shape": [4]}], "scalars": [4], **more})


def listing(m):
    """callables/ without its own two files."""
    return sorted(set(os.listdir(m.path + "/callables")) - {"usage", "close"})


# --- registering ----------------------------------------------------------------------------------


def test_callables__cp__registered_with_fresh_ids():
    need_root()
    with Mount() as m:
        for i, name in enumerate(["add", "same", "other"]):
            equal(put(m, name).returncode, 0)
            equal(show(m, name + ".id"), f"{i}\n")
        equal(listing(m), sorted(n + s for n in ("add", "same", "other") for s in (".id", ".img")))
        size = os.path.getsize(image(m, "add"))
        equal(os.stat(m.path + "/callables/add.img").st_size, size)
        equal(open(m.path + "/callables/add.img", "rb").read(), open(image(m, "add"), "rb").read())
        equal(usage(m)["registrations"], f"3 of {LIMIT}")
        equal(usage(m)["resident_bytes"], str(3 * ((size + 63) // 64 * 64)))
        equal(usage(m)["allocated_bytes"], f"{2 << 20} of {2 << 30}")
        equal((m.metric("npufs_callables"), m.metric("npufs_callable_bytes")), (3, 2 << 20))
        equal(os.listdir(m.path + "/control/operations"), [])


def test_callables__shell_redirection__registered_once():
    need_root()
    with Mount() as m:
        path = image(m, "add")
        r = run(f"cat {path} > {m.path}/callables/a.img")
        equal(r.returncode, 0, r.stderr)
        # A flush comes with each program that had the file open.
        r = run(f"{{ head -c 100 {path}; tail -c +101 {path}; }} > {m.path}/callables/b.img")
        equal(r.returncode, 0, r.stderr)
        until(lambda: "b.id" in listing(m), 10, "b is registered")
        equal(usage(m)["registrations"], f"2 of {LIMIT}")


def test_callables__appended_in_pieces__whole_whoever_looks_meanwhile():
    """Where the next piece goes is taken from the size that the file shows (K03-01)."""
    need_root()
    with Mount() as m:
        with open(image(m, "add"), "rb") as f:
            whole = f.read()
        path = image(m, "add")
        r = run(f"{{ head -c 100 {path}; tail -c +101 {path}; }} >> {m.path}/callables/a.img")
        equal(r.returncode, 0, r.stderr)
        path = m.path + "/callables/b.img"
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for k in range(0, len(whole), 100):
            os.write(fd, whole[k:k + 100])
            equal(os.stat(path).st_size, min(k + 100, len(whole)))
            equal(errno_of(os.ftruncate, fd, k + 1), errno.EINVAL)
            os.ftruncate(fd, min(k + 100, len(whole)))
        os.close(fd)
        for name in ("a", "b"):
            with open(f"{m.path}/callables/{name}.img", "rb") as f:
                equal(f.read(), whole)


def test_callables__copied_with_what_it_had__registered_as_the_folder_has_it():
    """What keeps owner and mode does not fail, and changes nothing of them (K06-02, K07-01)."""
    need_root()
    with Mount() as m:
        folder = m.path + "/callables"
        commands = ["cp -p {0} {1}", "cp {0} {0}.x && mv {0}.x {1}", "install -m 644 {0} {1}",
                    "cp {0} {1} && touch {1}"]
        for k, command in enumerate(commands):
            file = f"{folder}/c{k}.img"
            ok(command.format(image(m, "add"), file))
            equal(show(m, f"c{k}.id"), f"{k}\n")
            equal(stat.S_IMODE(os.stat(file).st_mode), 0o440, command)
        os.rename(image(m, "add"), m.dir + "/t.img")
        ok(f"tar -cf {m.dir}/t.tar -C {m.dir} t.img && tar -xpf {m.dir}/t.tar -C {folder}")
        equal(show(m, "t.id"), "4\n")
        equal(errno_of(os.chown, folder + "/t.img", U1, -1), errno.EPERM)
        equal(errno_of(os.chown, folder + "/t.img", -1, U1), errno.EPERM)
        equal(errno_of(os.chmod, folder + "/t.id", 0o777), errno.EACCES)


def test_callables__resident__neither_removed_nor_overwritten_until_closed():
    need_root()
    with Mount() as m:
        put(m, "add")
        path = m.path + "/callables/add.img"
        for refused in (lambda: os.unlink(path), lambda: os.unlink(path[:-3] + "id"),
                        lambda: os.open(path, os.O_WRONLY), lambda: os.truncate(path, 0),
                        lambda: write(path, b"x")):
            equal(errno_of(refused), errno.EBUSY)
        assert "busy" in put(m, "add").stderr
        assert "until callables/close" in show(m, "usage")
        equal(show(m, "add.id"), "0\n")
        write_line(m, "now: the test is over")
        equal(listing(m), [])
        equal(usage(m)["context"], "2")
        equal(usage(m)["allocated_bytes"], f"0 of {2 << 30}")
        equal(put(m, "add").returncode, 0)
        equal(show(m, "add.id"), "0\n")


def write_line(m, line):
    """A command to callables/close."""
    fd = os.open(m.path + "/callables/close", os.O_WRONLY)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def test_callables__not_an_image__refused_at_the_write_and_told():
    need_root()
    with Mount() as m:
        r = run(f"echo hello > {m.path}/callables/bad.img")
        assert r.returncode and ("Invalid argument" in r.stderr or "I/O error" in r.stderr), r.stderr
        equal(listing(m), ["bad.err", "bad.id"])
        equal(show(m, "bad.id"), "-1\n")
        assert "error: 22 EINVAL\nfield: magic\n" in show(m, "bad.err")
        equal(put(m, "bad").returncode, 0)  # the name can be used again
        equal(listing(m), ["bad.id", "bad.img"])


def test_callables__damaged_images__refused_by_cp_and_told():
    need_root()
    with Mount() as m:
        whole = open(image(m, "add"), "rb").read()
        cases = {"cut": (whole[:300], "total_bytes"), "long": (whole + b"\0" * 64, "total_bytes"),
                 "version": (whole[:8] + struct.pack("<I", 9) + whole[12:], "version"),
                 "code": (whole[:-64] + b"\xff" * 64, "")}
        for name, (content, field) in cases.items():
            with open(m.dir + "/x.img", "wb") as f:
                f.write(content)
            r = run(["cp", m.dir + "/x.img", f"{m.path}/callables/{name}.img"])
            until(lambda: name + ".id" in listing(m), 10, "it is decided")
            equal(show(m, name + ".id"), "-1\n", name)
            assert f"field: {field}" in show(m, name + ".err"), show(m, name + ".err")
            # Who closes before the end of it is told nothing: a shell flushes in the middle, too.
            equal(r.returncode != 0, name != "cut", name)
        equal(usage(m)["registrations"], f"0 of {LIMIT}")
        os.unlink(m.path + "/callables/cut.err")
        assert not any(n.startswith("cut") for n in listing(m))
        assert not os.listdir(m.store + "/callables"), "a refused image was kept"


def test_callables__empty_or_abandoned__leaves_nothing():
    need_root()
    with Mount() as m:
        write(m.path + "/callables/e.img", b"")
        until(lambda: listing(m) == [], 10, "it is gone")


def test_callables__written_by_appending__has_the_length_written_so_far():
    need_root()
    with Mount() as m:
        content = open(image(m, "add"), "rb").read()
        path = m.path + "/callables/add.img"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for at in range(0, len(content), 100):
            equal(os.stat(path).st_size, at)
            os.write(fd, content[at:at + 100])
        os.ftruncate(fd, len(content))
        equal(errno_of(os.ftruncate, fd, 0), errno.EINVAL)
        os.close(fd)
        equal(show(m, "add.id"), "0\n")


def test_callables__names__only_images_of_plain_names():
    need_root()
    with Mount() as m:
        for name in ("add", "add.txt", ".add.img", ".img", "a b.img", "x" * 64 + ".img", "add.id",
                     "usage.id"):
            got = errno_of(write, f"{m.path}/callables/{name}", b"x")
            assert got in (errno.EINVAL, errno.ENAMETOOLONG), (name, got)
        equal(errno_of(os.mkdir, m.path + "/callables/d"), errno.EPERM)
        equal(errno_of(os.symlink, "x", m.path + "/callables/l.img"), errno.EPERM)
        equal(put(m, "x" * 63).returncode, 0)
        equal(errno_of(os.rename, f"{m.path}/callables/{'x' * 63}.img", m.path + "/callables/y.img"),
              errno.EPERM)


def test_callables__too_large__refused_by_name_of_the_option():
    need_root()
    with Mount("callable_size=1k") as m:
        equal(put(m, "add").returncode, 0)
        with open(m.dir + "/big.img", "wb") as f:
            f.write(open(image(m, "add"), "rb").read() + b"\0" * 4096)
        r = run(["cp", m.dir + "/big.img", m.path + "/callables/big.img"])
        assert "too large" in r.stderr, r.stderr
        assert "callable_size" in show(m, "big.err"), show(m, "big.err")


def test_callables__as_many_as_can_be__all_there_and_the_next_one_refused():
    need_root()
    m = Mount()
    ok(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", m.store])  # a disk would take minutes
    os.mkdir(m.store + "/models", 0o755)
    try:
        with m:
            content = open(image(m, "add"), "rb").read()
            for i in range(LIMIT):
                write(f"{m.path}/callables/c{i}.img", content)
            equal(sorted(int(show(m, f"c{i}.id")) for i in range(LIMIT)), list(range(LIMIT)))
            before = usage(m)
            equal(errno_of(write, m.path + "/callables/more.img", content), errno.ENOSPC)
            equal(show(m, "more.id"), "-1\n")
            assert "error: 28 ENOSPC\nfield: registrations\n" in show(m, "more.err"), show(m, "more.err")
            equal((usage(m), before["registrations"]), (before, f"{LIMIT} of {LIMIT}"))
            equal(len(listing(m)), 2 * LIMIT + 2)
            m.put("a.json", add(f"c{LIMIT - 1}"))
            equal(json.loads(m.out("a"))["outputs"][0]["data"], [11, 22, 33, 44])
            m.stop()
            m.start()
            until(lambda: usage(m)["state"] == "open", 20, "they are registered again")
            equal(usage(m)["registrations"], f"{LIMIT} of {LIMIT}")
            write_line(m, "now: too many")
            equal((listing(m), usage(m)["allocated_bytes"]), ([], f"0 of {2 << 30}"))
            assert not os.path.exists(m.store + "/callables"), "images were kept"
            ok(["umount", "-l", m.store])
    finally:
        run(["umount", "-l", m.store])


# --- who ------------------------------------------------------------------------------------------


def test_callables__ordinary_users__look_and_launch_but_change_nothing():
    need_root()
    with Mount() as m:
        put(m, "add")
        folder = m.path + "/callables"
        before = len(records(m))
        attempts = [lambda: write(folder + "/mine.img", b"NPUCALL1"),
                    lambda: os.unlink(folder + "/add.img"), lambda: open(folder + "/add.img", "rb").read(),
                    lambda: os.open(folder + "/add.img", os.O_WRONLY),
                    lambda: os.open(folder + "/close", os.O_WRONLY),
                    lambda: open(folder + "/close", "rb").read(),
                    lambda: os.truncate(folder + "/add.img", 0), lambda: os.chmod(folder + "/add.img", 0o777)]
        for attempt in attempts:
            equal(as_user(U1, errno_of, attempt), errno.EACCES)
        equal(as_user(U1, read, folder + "/add.id"), "0\n")
        assert as_user(U1, read, folder + "/usage").startswith("state: open\n")
        until(lambda: len(records(m)) >= before + len(attempts), 10, "all were audited")
        assert all(r["decision"] == "refused" and r["uid"] == U1 for r in records(m)[before:])
        as_user(U1, write, m.job("u.json"), add("add"))
        equal(json.loads(as_user(U1, read, m.job("u.out")))["outputs"][0]["data"], [11, 22, 33, 44])


def test_callables__registration__audited_by_digest():
    need_root()
    with Mount() as m:
        put(m, "add")
        digest = hashlib.sha256(open(image(m, "add"), "rb").read()).hexdigest()
        want = hashlib.sha256(f"add {digest}".encode()).hexdigest()
        intent, = found(m, command="prepare", decision="intent")
        done, = found(m, command="prepare", decision="done")
        equal((intent["args"], intent["uid"], done["uid"]), (want, 0, 0))
        assert digest not in json.dumps(records(m))


def test_callables__images_that_come_to_nothing__audited_once_each():
    need_root()
    with Mount("callable_size=1k") as m:
        path = m.path + "/callables/bad.img"
        with open(image(m, "add"), "rb") as f:
            large = f.read() + b"\0" * 1024
        for n, (content, why) in enumerate([(b"nonsense", "image"), (large, "image"), (b"", "empty")]):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY)
            for _ in range(2):
                errno_of(os.write, fd, content)
            errno_of(os.close, fd)
            until(lambda n=n: len(found(m, command="prepare", decision="refused")) == n + 1, 5, "it is told")
            told = found(m, command="prepare", decision="refused")[-1]
            equal((told["why"], told["node"], told["uid"]), (why, "callables/NAME.img", 0))
        equal(found(m, command="prepare", decision="intent"), [])


def test_callables__close__needs_its_words_and_an_idle_device():
    need_root()
    with Mount("sim_delay=100ms") as m:
        put(m, "add")
        equal(errno_of(write_line, m, "nwo: wrong"), errno.EINVAL)
        m.put("slow.json", json.dumps({"prompt": "s" * 100}))
        m.runs("slow")
        equal(errno_of(write_line, m, "now: while it runs"), errno.EBUSY)
        equal(listing(m), ["add.id", "add.img"])
        os.unlink(m.job("slow.json"))


def test_callables__close__forgets_refusals_too():
    need_root()
    with Mount() as m:
        put(m, "add")
        assert errno_of(write, m.path + "/callables/bad.img", "nonsense")
        equal(listing(m), ["add.id", "add.img", "bad.err", "bad.id"])
        write_line(m, "now: all of it")
        equal(listing(m), [])


def test_callables__as_many_as_there_may_be__an_unknown_name_is_told_soon():
    need_root()
    with Mount() as m:
        put(m, "add")
        m.stop()
        content = open(image(m, "add"), "rb").read()
        for i in range(LIMIT - 1):
            write(f"{m.store}/callables/{'x' * 50}{i:05}.img", content)
        m.start()
        until(lambda: usage(m)["registrations"] == f"{LIMIT} of {LIMIT}", 20, "all are registered")
        with took(2, "a hundred refusals"):
            for _ in range(100):
                equal(m.send("u.json", add("x" * 50 + "0080x")), errno.ENOENT)


# --- launching ------------------------------------------------------------------------------------


def test_launch__by_name_and_id__the_sum():
    need_root()
    with Mount() as m:
        put(m, "first")
        put(m, "add")
        for stem, which in (("n", "add"), ("i", 1)):
            m.put(stem + ".json", add(which))
            answer = json.loads(m.out(stem))
            equal(answer["callable"], which)
            equal(answer["outputs"], [{"name": "z", "datatype": "FP32", "shape": [4],
                                       "data": [11, 22, 33, 44]}])
            s = m.status(stem)
            equal((s["state"], s["model"]), ("done", "callables/"))
            equal(s["model_sha256"], hashlib.sha256(open(image(m, "add"), "rb").read()).hexdigest())
        equal(usage(m)["launches"], "2")
        equal(usage(m)["buffer_bytes"].split()[0], "0")


def test_launch__matmul__as_in_plain_python():
    need_root()
    with Mount() as m:
        put(m, "matmul", "matmul")
        a, b = [1, 2, 3, 4, 5, 6], [1, 0, -1, 2, 1, 0.5]
        m.put("m.json", json.dumps({"callable": "matmul", "scalars": [2, 3, 2], "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [2, 3], "data": [a[:3], a[3:]]},
            {"name": "b", "datatype": "FP32", "shape": [3, 2], "data": b}],
            "outputs": [{"name": "c", "shape": [2, 2]}]}))
        want = [sum(a[i * 3 + k] * b[k * 2 + j] for k in range(3)) for i in range(2) for j in range(2)]
        equal(json.loads(m.out("m"))["outputs"][0]["data"], want)


def test_launch__softmax__as_in_plain_python():
    need_root()
    with Mount() as m:
        put(m, "softmax", "softmax")
        rows = [[1, 2, 3], [0, 0, 0], [-500, 500, 499]]
        m.put("s.json", json.dumps({"callable": "softmax", "scalars": [3, 3], "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [3, 3], "data": rows}],
            "outputs": [{"name": "y", "shape": [3, 3]}]}))
        got = json.loads(m.out("s"))["outputs"][0]["data"]
        for i, row in enumerate(rows):
            terms = [math.exp(x - max(row)) for x in row]
            for j, term in enumerate(terms):
                assert abs(got[3 * i + j] - term / sum(terms)) < 1e-6, (got, i, j)


def test_launch__files_and_bytes__as_elsewhere():
    need_root()
    with Mount() as m:
        put(m, "add")
        write(m.job("x.bin"), array.array("f", X).tobytes())
        r = json.loads(add("add", output="raw"))
        r["inputs"][0] = {"name": "x", "datatype": "FP32", "shape": [4], "file": "x.bin"}
        m.put("a.json", json.dumps(r))
        equal(list(array.array("f", open(m.job("a.out"), "rb").read())), [11, 22, 33, 44])


def test_graph__repeated__state_goes_from_launch_to_launch():
    need_root()
    with Mount() as m:
        put(m, "add")
        put(m, "sum")
        m.put("g.json", json.dumps({
            "graph": [{"callable": "add", "tensors": ["x", "y", "x"], "scalars": [4]},
                      {"callable": "sum", "tensors": ["x", "y", "z"], "scalars": [4]}],
            "repeat": 100, "inputs": [vector("x", X), vector("y", Y)],
            "outputs": [{"name": "z", "shape": [4]}, {"name": "x"}]}))
        answer = json.loads(m.out("g"))
        equal(answer["launches"], 200)
        x = [a + 100 * b for a, b in zip(X, Y)]
        equal([o["data"] for o in answer["outputs"]], [[a + b for a, b in zip(x, Y)], x])
        equal(usage(m)["launches"], "200")


def test_launch__answer_read__usage_counts_it():
    need_root()
    with Mount() as m:
        put(m, "add")
        for n in range(1, 100):
            m.put("a.json", add("add"))
            m.out("a")
            equal(usage(m)["launches"], str(n))


def test_launch__more_output_than_is_kept__refused_before_it_is_made():
    need_root()
    with Mount() as m:
        put(m, "add")
        before = m.rss()
        with took(5, "the refusals"):
            for form, n in (("json", 60_000_000), ("npy", 60_000_000), ("raw", 60_000_000),
                            ("json", 6_000_000)):
                m.put("big.json", add("add", output=form, outputs=[{"name": "z", "shape": [n]}]))
                m.done("big")
                equal((m.err("big")["error"], m.err("big")["field"]), ("27 EFBIG", "outputs"))
        assert m.rss() < before + 65536, f"{before} kB, then {m.rss()}"
        m.put("fits.json", add("add", output="raw", outputs=[{"name": "z", "shape": [4_000_000]}]))
        equal(m.done("fits")["state"], "done")


def test_put__sparse_file__its_holes_are_zeros():
    """What cp makes of one: it seeks over them."""
    need_root()
    with Mount() as m:
        with open(image(m, "add"), "rb") as f:
            data = f.read()
        zeros = max(re.finditer(rb"\0+", data), key=lambda z: z.end() - z.start())
        fd = begun(m, "add")
        for at, piece in ((0, data[:zeros.start()]), (zeros.end(), data[zeros.end():])):
            os.lseek(fd, at, os.SEEK_SET)
            equal(os.write(fd, piece), len(piece))
        os.close(fd)
        equal(show(m, "add.id"), "0\n")
        fd = begun(m, "back")
        os.write(fd, data[:100])
        equal(errno_of(os.pwrite, fd, data[:1], 99), errno.ESPIPE)
        equal(errno_of(os.pwrite, fd, data[:1], (1 << 63) - 2), errno.ESPIPE, "the first fault stays")
        equal(errno_of(os.close, fd), errno.ESPIPE)
        fd = begun(m, "far")
        equal(errno_of(os.pwrite, fd, data[:1], 1 << 62), errno.EFBIG)
        equal(errno_of(os.close, fd), errno.EFBIG)


def test_launch__as_much_json_as_is_kept__takes_little_memory():
    """A user of the smallest tensors must not have the daemon killed for its memory."""
    need_root()
    if SANITIZED:
        raise Skip("a sanitizer keeps what was freed")
    with Mount() as m:
        put(m, "add")
        before, n = m.rss(), 5_000_000
        m.put("big.json", add("add", outputs=[{"name": "z", "shape": [n]}]))
        equal(m.done("big")["state"], "done")
        peak = m.rss("VmHWM")
        assert peak < before + 150 * 1024, f"{before} kB, then {peak}"
        got, = json.loads(m.out("big"))["outputs"]
        equal((got["shape"], got["data"][:5], sum(got["data"])), ([n], [11, 22, 33, 44, 0], 110))


def test_launch__what_is_wrong__said_by_field():
    need_root()
    with Mount() as m:
        put(m, "add")
        base = json.loads(add("add"))
        cases = [
            ({"callable": "ad"}, errno.ENOENT, "callable", 'did you mean "add"?'),
            ({"callable": 7}, errno.ENOENT, "callable", "no callable 7 is resident"),
            ({"callable": -1}, errno.ERANGE, "callable", "must be"),
            ({"callable": LIMIT}, errno.ERANGE, "callable", "must be"),
            ({"scalars": []}, errno.EINVAL, "scalars", "0 scalars are given; the callable takes 1"),
            ({"scalars": [1.5]}, errno.EINVAL, "scalars", 'scalar 0, "n", must be an integer'),
            ({"scalars": [1 << 21]}, errno.EINVAL, "scalars", "0..1048576"),
            ({"inputs": base["inputs"][:1]}, errno.EINVAL, "callable", 'there is no tensor "y"'),
            ({"inputs": base["inputs"] + [vector("w", X)]}, errno.EINVAL, "inputs", "no launch takes"),
            ({"outputs": [{"name": "z"}]}, errno.EINVAL, "outputs[0]", "the shape of"),
            ({"outputs": [{"name": "z", "shape": [4]}, {"name": "x"}]}, errno.EINVAL, "outputs",
             'no launch writes "x"'),
            ({"model": "echo"}, errno.EINVAL, "model", "without a model"),
            ({"session": "s"}, errno.EINVAL, "session", "no sessions"),
            ({"prompt": "x"}, errno.EINVAL, "callable", "both given"),
            ({"outputs": [{"name": "z", "shape": [1 << 40]}]}, errno.E2BIG, "outputs", "more than"),
            ({"repeat": 0}, errno.ERANGE, "repeat", "must be"),
        ]
        for i, (change, want, field, reason) in enumerate(cases):
            equal(m.send(f"c{i}.json", json.dumps({**base, **change})), want, change)
            err = m.err(f"c{i}")
            equal(err.get("field"), field, change)
            assert reason in err["reason"], (change, err)
        integers = json.loads(json.dumps(base).replace("FP32", "INT32"))
        equal(m.send("t.json", json.dumps(integers)), errno.EINVAL)
        assert "FP32" in m.err("t")["reason"]


def test_launch__out_of_bounds__fails_the_job_alone():
    need_root()
    with Mount() as m:
        put(m, "add")
        m.put("far.json", add("add", scalars=[400]))
        equal(m.done("far")["state"], "failed")
        m.put("near.json", add("add"))
        equal(json.loads(m.out("near"))["outputs"][0]["data"], [11, 22, 33, 44])
        equal(usage(m)["state"], "open")
        equal(usage(m)["buffer_bytes"].split()[0], "0")


def test_launch__infinities__never_delivered():
    need_root()
    with Mount() as m:
        put(m, "add")
        big = [3e38] * 4
        m.put("i.json", json.dumps({"callable": "add", "inputs": [vector("x", big), vector("y", big)],
                                    "outputs": [{"name": "z", "shape": [4]}], "scalars": [4]}))
        s = m.done("i")
        equal((s["state"], s["error"]), ("failed", "5 EIO"))


def test_launch__batch_line__refused_by_itself():
    need_root()
    with Mount() as m:
        put(m, "add")
        m.put("b.jsonl", '{"prompt":"x"}\n' + add("add") + "\n")
        lines = [json.loads(x) for x in m.out("b").splitlines()]
        equal(len(lines), 2)
        assert "callable" in json.dumps(lines[1]), lines[1]
        equal(m.status("b")["lines_failed"], "1")


def test_launch__beside_prompts__both_are_answered():
    need_root()
    with Mount("sim_delay=2ms") as m:
        put(m, "add")
        for i in range(20):
            m.put(f"p{i}.json", json.dumps({"prompt": "hello"}))
            m.put(f"c{i}.json", add("add"))
        for i in range(20):
            equal(m.out(f"p{i}"), "hello\n")
            equal(json.loads(m.out(f"c{i}"))["outputs"][0]["data"], [11, 22, 33, 44])


def test_launch__cancelled_in_the_middle__gives_everything_back():
    need_root()
    with Mount() as m:
        put(m, "add")
        n = 1 << 16
        r = {"graph": [{"callable": "add", "tensors": ["x", "y", "x"], "scalars": [n]}] * 8,
             "repeat": 1000000, "inputs": [vector("x", [0] * n), vector("y", [1] * n)]}
        m.put("long.json", json.dumps(r))
        m.runs("long")
        os.unlink(m.job("long.json"))
        until(lambda: usage(m)["buffer_bytes"].split()[0] == "0", 10, "its tensors are given back")
        m.put("a.json", add("add"))
        with took(10, "the next one"):
            m.out("a")
        equal(usage(m)["buffer_bytes"].split()[0], "0")
        m.put("late.json", json.dumps({**r, "deadline_ms": 100}))
        equal(m.done("late")["state"], "expired")


# --- what lasts -----------------------------------------------------------------------------------


def test_callables__restart__names_are_registered_again_and_queued_jobs_run():
    need_root()
    with Mount(DELAY, "max_active=1") as m:
        put(m, "b")
        put(m, "add", "add")
        m.put("slow.json", LONG_REQUEST)
        m.runs("slow")
        m.put("named.json", add("add"))
        m.kill()
        m.start()
        os.unlink(m.job("slow.json"))
        until(lambda: usage(m)["state"] == "open", 10, "they are registered")
        equal(listing(m), ["add.id", "add.img", "b.id", "b.img"])
        equal(sorted([show(m, "add.id"), show(m, "b.id")]), ["0\n", "1\n"])
        m.put("again.json", add("add"))
        equal(json.loads(m.out("again"))["outputs"][0]["data"], [11, 22, 33, 44])
        equal(json.loads(m.out("named"))["outputs"][0]["data"], [11, 22, 33, 44])


def test_callables__ids_of_another_context__never_launch_another_program():
    need_root()
    with Mount(DELAY, "max_active=1") as m:
        put(m, "add")
        m.put("slow.json", LONG_REQUEST)
        m.runs("slow")
        m.put("by_id.json", add(0))
        m.put("by_name.json", add("add"))
        m.kill()
        m.start()
        os.unlink(m.job("slow.json"))
        equal(m.done("by_id")["state"], "failed")
        equal(m.err("by_id")["error"], "116 ESTALE")
        equal(json.loads(m.out("by_name"))["outputs"][0]["data"], [11, 22, 33, 44])


def test_callables__reset__registered_anew_under_the_same_names():
    need_root()
    with Mount() as m:
        put(m, "add")
        equal(command(m, "reset_device", "now: a test"), 0)
        equal(usage(m)["context"], "2")
        equal(listing(m), ["add.id", "add.img"])
        m.put("a.json", add("add"))
        equal(json.loads(m.out("a"))["outputs"][0]["data"], [11, 22, 33, 44])


def test_callables__kept_image_damaged__refused_at_start_and_the_rest_serve():
    need_root()
    with Mount() as m:
        put(m, "add")
        put(m, "bad")
        m.stop()
        with open(m.store + "/callables/bad.img", "r+b") as f:
            f.seek(8)
            f.write(b"\xff")
        m.start()
        until(lambda: usage(m)["state"] == "open", 10, "they are registered")
        equal(listing(m), ["add.id", "add.img", "bad.err", "bad.id"])
        assert "version" in show(m, "bad.err")
        equal(put(m, "bad").returncode, 0)


def test_launch__written_while_the_model_is_given_up__needs_none():
    """What was opened before is taken after: the device's thread has nothing but the launch then."""
    need_root()
    with Mount("fault=Wait@1000000:nan") as m:
        put(m, "add")
        fd = os.open(m.job("l.json"), os.O_CREAT | os.O_WRONLY)
        os.write(fd, add("add").encode())
        equal(command(m, "faults", "Wait@*:DeviceCrash: until the model is given up"), 0)
        for i in range(4):
            equal(m.send(f"a{i}.txt", "x"), 0)
            equal(errno_of(m.out, f"a{i}"), errno.EIO)
        until(lambda: read(m.path + "/health").startswith("failed\n"), 10, "it is given up")
        os.close(fd)
        equal(json.loads(m.out("l"))["outputs"][0]["data"], [11, 22, 33, 44])


def test_callables__killed_while_an_image_was_kept__its_half_is_removed():
    need_root()
    with Mount() as m:
        put(m, "add")
        m.kill()
        folder = m.store + "/callables/"
        write(folder + ".more.img.new", "half")
        write(folder + "notes.txt", "mine")
        m.start()
        until(lambda: usage(m)["state"] == "open", 10, "they are registered")
        equal(sorted(os.listdir(folder)), ["add.img", "notes.txt"])


def test_callables__odd_files_in_the_store__refused_alone():
    need_root()
    with Mount() as m:
        for name in "abcdefgh":
            put(m, name)
        m.stop()
        folder = m.store + "/callables/"
        os.symlink("/etc/passwd", folder + "link.img")
        write(folder + "notes.txt", "mine")
        os.chmod(folder + "notes.txt", 0o666)
        os.chmod(folder + "d.img", 0o666)
        os.mkdir(folder + "folder.img")
        m.start()
        until(lambda: usage(m)["state"] == "open", 10, "they are registered")
        equal([name for name in "abcdefgh" if name + ".img" in listing(m)], list("abcefgh"))
        for name in ("d", "folder", "link"):
            assert "could not be read" in show(m, name + ".err"), show(m, name + ".err")


def test_callables__start_without_a_device__what_is_kept_is_not_overwritten():
    need_root()
    with Mount() as m:
        put(m, "late")
        m.stop()
        m.options = ("fault=CreateVDevice@*:NoDevice",)
        m.start()
        equal(listing(m), ["late.img"])
        equal(errno_of(open, m.path + "/callables/late.img", "wb"), errno.EBUSY)
        assert put(m, "late", "matmul").returncode
        m.stop()
        m.options = ()
        m.start()
        until(lambda: usage(m)["state"] == "open", 10, "it is registered")
        equal(open(m.path + "/callables/late.img", "rb").read(), open(image(m, "add"), "rb").read())


def test_callables__store_folder_replaced_by_a_link__not_followed():
    need_root()
    with Mount() as m:
        os.mkdir(m.dir + "/elsewhere")
        os.symlink(m.dir + "/elsewhere", m.store + "/callables")
        assert put(m, "add").returncode
        equal(os.listdir(m.dir + "/elsewhere"), [])
        assert m.dir not in show(m, "add.err")


def test_callables__audit_cannot_be_written__nothing_is_registered():
    need_root()
    m = Mount()
    os.mkdir(m.store + "/audit", 0o700)
    ok(["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", m.store + "/audit"])
    try:
        with m:
            put(m, "add")
            run(f"dd if=/dev/zero of={m.store}/audit/filler bs=4k")
            done = 1  # the page that has the last records has room for a few more
            put(m, "more1")
            while show(m, f"more{done}.id") != "-1\n":  # what had its intent written was done
                done += 1
                assert done < 20, "nothing is refused"
                put(m, f"more{done}")
            equal(usage(m)["registrations"], f"{done} of {LIMIT}")
            equal(len(os.listdir(m.store + "/callables")), done)
            os.unlink(m.store + "/audit/filler")
            equal(put(m, f"more{done}").returncode, 0)
            ok(["umount", "-l", m.store + "/audit"])
    finally:
        run(["umount", "-l", m.store + "/audit"])
