"""control/: the privileged plane as files, for root alone, and every attempt in the audit trail."""

import decimal
import errno
import json
import os
import re
import signal
import stat
import subprocess
import threading
import time

from harness import (BUILD, DELAY, LONG_REQUEST, SANITIZED, TOP, Mount, Skip, as_user, at_once, equal,
                     errno_of, need_root, ok, read, run, took, trail_lines, until)
from test_models import XOR, Models
from test_names import exchange

HELLO = '{"prompt":"hello"}'
NOBODY = 65534
COMMANDS = ["configure", "drain", "load", "parallel", "reset_ccu", "reset_config", "reset_device",
            "unload", "unlock"]


def records(m):
    """The audit trail as it is on the disk."""
    return [json.loads(x) for x in trail_lines(m, "audit")]


def found(m, **fields):
    """The records with these fields."""
    return [r for r in records(m) if all(r.get(k) == v for k, v in fields.items())]


def command(m, node, line):
    """Write one line to a node; the errno, or 0."""
    return errno_of(write, m.path + "/control/" + node, line + "\n")


def write(path, text):
    """One open, one write, as echo does."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def as_nobody(function, *args):
    """The errno that an ordinary user gets."""
    return errno_of(as_user, NOBODY, function, *args)


def test_control__nodes__modes_usage_and_listing():
    need_root()
    with Mount() as m:
        equal(stat.S_IMODE(os.stat(m.path + "/control").st_mode), 0o700)
        equal(sorted(os.listdir(m.path + "/control")),
              sorted(COMMANDS + ["audit", "last_error", "operations", "trace"]))
        for name in COMMANDS:
            path = m.path + "/control/" + name
            equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            assert "write one line: " in read(path), read(path)
        equal(os.listdir(m.path + "/control/operations"), [])
        equal(read(m.path + "/control/last_error"), "")


def test_control__reset__done_audited_and_told():
    need_root()
    with Mount() as m:
        equal(command(m, "reset_ccu", "now: a fan was replaced"), 0)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(m.status("a")["generation"], "2")
        intent, = found(m, command="reset_ccu", decision="intent")
        done, = found(m, command="reset_ccu", decision="done")
        assert intent["seq"] < done["seq"] and intent["message"] == "a fan was replaced", intent
        equal((intent["uid"], intent["node"]), (0, "control/reset_ccu"))
        equal((intent["comm"], intent["pid"]), (read("/proc/self/comm").strip(), os.getpid()))
        told = read(m.path + "/control/operations/1")
        assert "state: done\n" in told and "command: reset_ccu\n" in told, told
        assert any('"decision":"done"' in x
                   for x in read(m.path + "/control/audit").splitlines()), "not shown"
        m.stop()
        ok([BUILD + "/npufs-admin", "audit", "verify", m.store])
        m.start()


USAGE = {"load": "ALIAS [force]", "parallel": "on|off [force]", "drain": "now",
         "trace/start": "SECONDS BYTES", "trace/stop": "now", "faults": "PLAN|none",
         **{n: "now [force]" for n in ("configure", "reset_ccu", "reset_config", "reset_device", "unload")},
         "unlock": "now", "../callables/close": "now [force]"}
NO_LINES = ["", "now", "now:", "now: " + "x" * 2000, "now: " + "x" * 600, "now: a\x01b", "now: a\nnow: b",
            "now: \0"]
WRONG = {True: NO_LINES + ["now: ", "yes: please", "now forced: please", "force: please", "now  : x", "Now: x"],
         False: NO_LINES + [": please", "a b c d: please", "a  b: please", " a: please"]}


def test_control__wrong_words__einval_usage_and_one_refusal_each():
    need_root()
    with Mount("fault=Wait@1000000:nan") as m:
        for node, usage in USAGE.items():
            form = f"write one line: {usage}: REASON\n"
            equal(read(f"{m.path}/control/{node}").splitlines(keepends=True)[1:], [form], node)
            lines = WRONG[usage.startswith("now")]
            for line in lines if node in ("reset_ccu", "load") else lines[-2:]:
                before = len(found(m, decision="refused"))
                equal(command(m, node, line), errno.EINVAL, (node, line))
                error = read(m.path + "/control/last_error")
                assert "error: EINVAL\n" in error and error.endswith("usage: " + form), (node, line, error)
                equal(len(found(m, decision="refused")), before + 1, (node, line))
        equal(found(m, decision="intent"), [])
        equal(command(m, "load", "nothing: there"), errno.ENOENT)
        assert "usage:" not in read(m.path + "/control/last_error")
        for node, line in (("parallel", "maybe: so"), ("trace/start", "one 100000: x"), ("faults", "Wiat@1:x: y")):
            equal(command(m, node, line), errno.EINVAL)
            error = read(m.path + "/control/last_error")
            assert f"written: {line}\n" in error and f"usage: write one line: {USAGE[node]}" in error, error
        for _ in range(70):
            equal(command(m, "trace/stop", "now: fine") in (0, errno.EAGAIN), True)
        assert "error: E" in read(m.path + "/control/last_error"), "it stays"
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(m.status("a")["generation"], "1", "nothing was done")


def test_control__more_at_once_than_can_wait__told_and_audited():
    """Of one node the kernel passes on one write at a time, but any number of reads."""
    need_root()
    with Mount("fault=Wait@2:hang", "wait_limit=200ms", "drain=0", "raw_access") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.ETIMEDOUT)
        answers = []
        with open(m.path + "/control/memory", "rb", buffering=0) as memory:
            fd = memory.fileno()
            readers = [threading.Thread(target=lambda: answers.append(errno_of(os.pread, fd, 4, 0x1000)))
                       for _ in range(66)]
            for reader in readers:
                reader.start()
            until(lambda: answers == [errno.EAGAIN], 10, "one is too many")
            refused, = until(lambda: found(m, decision="refused"), 5, "it is recorded")
            m.proc.terminate()
            m.proc.wait()
            for reader in readers:
                reader.join()
        equal((refused["command"], refused["node"], refused["why"], refused["uid"]),
              ("memory read", "control/memory", "queue", 0))
        m.ends(status=1)


def test_control__ordinary_user__refused_everywhere_and_audited_cold_and_warm():
    need_root()
    with Mount() as m:
        base = m.path + "/control"
        for warm in (False, True):
            before = len(found(m, uid=NOBODY, decision="refused"))
            attempts = [(os.listdir, base), (read, base + "/audit"),
                        (write, base + "/reset_device", "now: let me\n"),
                        (read, base + "/operations/1"), (os.unlink, base + "/load"),
                        (os.mkdir, base + "/x"), (os.rmdir, base + "/operations"),
                        (os.rename, base + "/load", base + "/x"),
                        (os.truncate, base + "/load", 0), (os.listdir, base + "/operations")]
            for attempt in attempts:
                equal(as_nobody(*attempt), errno.EACCES, f"{attempt[0].__name__} {attempt[1]}")
            until(lambda: len(found(m, uid=NOBODY, decision="refused")) >= before + len(attempts),
                  5, "all of them recorded")
            if not warm:
                ok(f"ls -lR {base} >/dev/null; cat {base}/load {base}/audit >/dev/null")
        equal(found(m, uid=NOBODY, decision="done"), [])
        equal(found(m, uid=NOBODY, decision="intent"), [])
        assert found(m, uid=0, command="open", decision="done"), "root's opens are recorded too"


def test_control__descriptor_given_away__the_writer_counts():
    """Who writes is who is asked about, whoever opened it."""
    need_root()
    with Mount() as m:
        fd = os.open(m.path + "/control/reset_ccu", os.O_WRONLY)
        equal(as_nobody(os.write, fd, b"now: mine\n"), errno.EACCES)
        os.close(fd)
        refused, = found(m, uid=NOBODY, command="reset_ccu", decision="refused")
        equal((refused["why"], refused["comm"]), ("unauthorised", read("/proc/self/comm").strip()))
        equal(found(m, command="reset_ccu", decision="intent"), [])


def test_control__reset_while_jobs_run__busy_unless_forced():
    need_root()
    with Mount(DELAY) as m:
        m.put("a.json", LONG_REQUEST)
        until(lambda: m.status("a")["state"] == "running", 10, "running")
        equal(command(m, "reset_device", "now: impatient"), errno.EBUSY)
        busy, = found(m, command="reset_device", decision="refused")
        equal(busy["why"], "busy")
        equal(command(m, "reset_device", "now force: really"), 0)
        equal(errno_of(m.out, "a"), errno.EIO)
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n")


def test_control__unload_drain_and_configure__jobs_wait_or_are_refused():
    need_root()
    with Mount() as m:
        equal(command(m, "unload", "now: maintenance"), 0)
        assert read(m.path + "/health").startswith("draining\n"), read(m.path + "/health")
        assert not os.path.exists(m.path + "/ready")
        m.put("a.json", HELLO)
        equal(m.status("a")["state"], "queued")
        equal(command(m, "configure", "now: done"), 0)
        equal(m.out("a"), "hello\n")
        equal(command(m, "drain", "now: maintenance"), 0)
        equal(errno_of(m.put, "b.json", HELLO), errno.EROFS)
        equal(command(m, "configure", "now: done"), 0)
        m.put("c.json", HELLO)
        equal(m.out("c"), "hello\n")


def test_control__load__serves_the_other_model():
    need_root()
    with Models(models=("dates", "xor")) as m:
        equal(command(m, "load", "xor: wanted"), 0)
        equal(read(m.path + "/models/xor/state"), "ready\n")
        m.put("a.json", XOR)
        equal(json.loads(m.out("a"))["outputs"][0]["data"], [1])
        equal(command(m, "load", "xro: typing"), errno.ENOENT)
        assert "did you mean" in read(m.path + "/control/last_error")


def test_control__too_many_resets__refused_for_a_while():
    """No reset storm (device contract 7)."""
    need_root()
    with Mount() as m:
        for i in range(4):
            equal(command(m, "reset_config", f"now: number {i}"), 0)
        equal(command(m, "reset_config", "now: one more"), errno.EAGAIN)
        refused, = found(m, command="reset_config", decision="refused")
        equal(refused["why"], "rate")


def test_control__trail_cannot_be_written__nothing_is_done():
    need_root()
    with Mount() as m:
        os.rename(m.store + "/audit", m.store + "/audit-away")
        os.symlink("/tmp", m.store + "/audit")
        m.stop()
        m.start()
        equal(command(m, "reset_ccu", "now: unseen"), errno.EIO)
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(m.status("a")["generation"], "1")
        os.unlink(m.store + "/audit")
        os.rename(m.store + "/audit-away", m.store + "/audit")


def test_control__stop_with_a_thousand_looks_to_record__soon_and_all_recorded():
    need_root()
    with Mount() as m:
        for _ in range(1000):
            os.close(os.open(m.path + "/control/last_error", os.O_RDONLY))
        with took(3, "the stop"):
            m.stop()
        equal(len(found(m, command="open", node="control/last_error", decision="done")), 1000)
        ok([os.path.join(BUILD, "npufs-admin"), "audit", "verify", m.store])


def told(m):
    """How many attempts the trail tells of: those with a record, and those that records count."""
    notes = [r for r in records(m) if r.get("command") == "list"]
    counts = [re.match(r"(\d+) more came before", r.get("message", "")) for r in records(m)]
    return len(notes) + sum(int(c[1]) for c in counts if c)


def test_control__flood_and_then_the_end__the_rest_is_counted():
    need_root()
    with Mount() as m:
        as_user(NOBODY, lambda: [errno_of(os.listdir, m.path + "/control") for _ in range(300)] and None)
        m.stop()
        equal(told(m), 300)
        ok([BUILD + "/npufs-admin", "audit", "verify", m.store])


def test_control__looks_on_a_full_disk__counted_when_there_is_room():
    need_root()
    m = Mount()
    audit = m.store + "/audit"
    os.mkdir(audit, 0o700)
    ok(["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", audit])
    try:
        with m:
            run(["dd", "if=/dev/zero", f"of={audit}/filler", "bs=4k"])
            for _ in range(50):
                os.listdir(m.path + "/control")
            until(lambda: "could not be audited" in read(m.log), 10, "the log says so")
            os.unlink(audit + "/filler")
            os.listdir(m.path + "/control")
            m.stop()
            equal(told(m), 51)
            ok(["umount", "-l", audit])
    finally:
        run(["umount", "-l", audit])


def test_control__flood_of_refused_attempts__bounded_and_nobody_waits():
    need_root()
    with Mount() as m:
        def flood():
            for _ in range(10000):
                errno_of(os.listdir, m.path + "/control")
        child = threading.Thread(target=as_nobody, args=(flood,))
        child.start()
        for i in range(20):
            m.put(f"a{i}.json", HELLO)
            equal(m.out(f"a{i}"), "hello\n")
        with took(2, "an operator's command"):
            equal(command(m, "configure", "now: in spite of it"), 0)
        child.join()
        until(lambda: any("more came before" in r["message"] for r in
                          found(m, uid=NOBODY)) or as_nobody(os.listdir, m.path + "/control") and
              False, 10, "the rest was counted")
        assert len(found(m, uid=NOBODY)) < 1000, len(found(m, uid=NOBODY))


def test_control__hung_device__command_times_out_or_stops_with_the_daemon():
    """A command that waits for a device that hangs holds up nothing but itself."""
    need_root()
    with Mount("fault=Wait@2:hang", "wait_limit=200ms", "drain=0") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.ETIMEDOUT)
        answers = []
        writer = threading.Thread(
            target=lambda: answers.append(command(m, "reset_ccu", "now force: it hangs")))
        writer.start()
        until(lambda: os.listdir(m.path + "/control/operations") == ["1"], 5, "begun")
        assert "state: under way" in read(m.path + "/control/operations/1")
        at_once(m.path + "/health")
        m.proc.terminate()
        m.ends(status=1)
        writer.join()
        assert answers[0] in (errno.ESHUTDOWN, errno.ECONNABORTED, errno.ENOTCONN), answers


def waits(m, line):
    """A shell that waits for the answer to a line."""
    shell = subprocess.Popen(["sh", "-c", line], cwd=m.path, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    equal(shell.poll(), None, line)
    return shell


def test_control__interrupted_on_a_hung_device__the_writer_ends_and_texts_are_there():
    """A signal ends the wait: what has begun goes on, what has not is taken back (K05-03)."""
    need_root()
    with Mount("fault=Wait@2:hang", "wait_limit=200ms", "drain=0") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.ETIMEDOUT)
        image = m.dir + "/add.img"
        spec = TOP + "/examples/callables/add.json"
        ok([BUILD + "/npufs-admin", "callable", "build", spec, image])
        for line in ("echo now force: begun > control/reset_ccu",
                     "echo now force: waiting > control/reset_ccu",
                     f"exec cp {image} callables/add.img"):
            shell = waits(m, line)
            shell.terminate()
            equal(shell.wait(5), -signal.SIGTERM, line)
        with took(1, "audit"):
            read(m.path + "/control/audit")
        equal(os.listdir(m.path + "/control/operations"), ["1"])
        assert "state: under way" in read(m.path + "/control/operations/1")
        until(lambda: found(m, command="reset_ccu", node="control/reset_ccu", decision="refused",
                            why="taken back"), 5, "the one that did not begin")
        m.proc.terminate()
        m.ends(status=1)


def test_control__stop_behind_a_command_that_hangs__those_that_wait_are_told_and_recorded():
    need_root()
    with Mount("fault=ResetCCU@1:hang", "drain=0") as m:
        answers = []
        writers = [threading.Thread(target=lambda n=node: answers.append(command(m, n, "now: a test")))
                   for node in ("reset_ccu", "configure", "drain")]
        for writer in writers:
            writer.start()
            time.sleep(0.3)
        equal(os.listdir(m.path + "/control/operations"), ["1"])
        m.proc.terminate()
        m.ends(status=1)
        for writer in writers:
            writer.join()
        equal(answers[:2], 2 * [errno.ESHUTDOWN], "what had not begun is answered")
        for name in ("configure", "drain"):
            equal([r["why"] for r in found(m, command=name, node="control/" + name)], ["stop"])
        ok([BUILD + "/npufs-admin", "audit", "verify", m.store])


def test_control__exchange_with_a_job__refused_and_recorded():
    """Whatever way a name of control/ is to be moved by, it is an attempt."""
    need_root()
    with Mount() as m:
        m.put("a", "1")
        equal(exchange(m.path + "/control/load", m.job("a")), errno.EPERM)
        equal(exchange(m.job("a"), m.path + "/control/load"), errno.EPERM)
        until(lambda: len(found(m, command="rename", decision="refused")) == 2, 5, "both recorded")


def test_control__faults__planted_and_taken_away_at_run_time():
    need_root()
    with Mount("fault=Wait@1000000:nan") as m:
        equal(command(m, "faults", "infer@*:DeviceBusy: a drill"), 0)
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.EBUSY)
        equal(command(m, "faults", "none: over"), 0)
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n")
        equal(command(m, "faults", "Wiat@1:nan: typing"), errno.EINVAL)
    with Mount() as m:
        assert not os.path.exists(m.path + "/control/faults")


def key(m, name):
    """A key pair."""
    ok([BUILD + "/npufs-admin", "key", "generate", f"{m.dir}/{name}"])
    return f"{m.dir}/{name}.pem"


def approve(m, operation, pem):
    """Sign as an approver does; the exit status."""
    return run([BUILD + "/npufs-admin", "approve", m.path, operation, "--key", pem])


def test_control__approvals__two_different_approvers_and_only_then():
    need_root()
    with Mount("approvals=2") as m:
        keys = [key(m, name) for name in ("anna", "ben", "eve")]
        os.mkdir(m.store + "/approvers", 0o755)
        for pem in keys[:2]:
            ok([BUILD + "/npufs-admin", "approver", "add", m.store,
                pem.removesuffix(".pem") + ".pub.pem"])
        equal(command(m, "reset_device", "now: it answers nothing"), errno.EINPROGRESS)
        pending, = os.listdir(m.path + "/control/approvals")
        text = read(f"{m.path}/control/approvals/{pending}")
        assert "\ncommand: reset_device\neffect: reset the device: the last resort; not while jobs run\n" \
            "reason: it answers nothing\n" in text, text
        equal(approve(m, pending, keys[2]).returncode, 1, "no approver's key")
        equal(approve(m, pending, keys[0]).returncode, 0)
        equal(approve(m, pending, keys[0]).returncode, 1, "the same one again")
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n")
        equal(m.status("a")["generation"], "1", "not yet")
        equal(errno_of(write, f"{m.path}/control/approvals/{pending}", "no signature\n"),
              errno.EINVAL)
        r = approve(m, pending, keys[1])
        equal(r.returncode, 0, r.stderr)
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n")
        equal(m.status("b")["generation"], "2", "done")
        equal(os.listdir(m.path + "/control/approvals"), [])
        equal(len(found(m, command="reset_device", decision="done")), 1)
        equal(command(m, "load", "echo: takes what is loaded off"), errno.EINPROGRESS)
        equal(command(m, "drain", "now: needs nobody"), 0)
        equal(as_nobody(os.listdir, m.path + "/control/approvals"), errno.EACCES)


def once(pairs):
    """A JSON object no key of which is there twice."""
    equal(len(dict(pairs)), len(pairs), "keys")
    return dict(pairs)


NS = decimal.Decimal(1000)  # of a microsecond, which is the format's unit


def check_name(e):
    """A metadata event: a process or a thread gets its name."""
    equal(set(e), {"name", "ph", "ts", "pid", "tid", "args"})
    assert e["name"] in ("process_name", "thread_name") and set(e["args"]) == {"name"}, e
    assert isinstance(e["args"]["name"], str) and e["args"]["name"], e


def check_complete(e):
    """A complete event; where it begins and ends, in ns."""
    equal(set(e), {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"})
    assert isinstance(e["name"], str) and isinstance(e["cat"], str) and isinstance(e["args"], dict), e
    assert all(isinstance(e[k], decimal.Decimal) and e[k] >= 0 for k in ("ts", "dur")), e
    return int(e["ts"] * NS), int((e["ts"] + e["dur"]) * NS)


def check_nesting(line, spans):
    """Slices of one line that overlap without one being in the other are dropped by viewers."""
    open_ends = []
    for begin, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], f"{line}: {begin}..{end} leaves {open_ends[-1]}"
        open_ends.append(end)


def check_trace_format(text):
    """What Perfetto and chrome://tracing ask of the JSON form; its complete events."""
    doc = json.loads(text, parse_float=decimal.Decimal, object_pairs_hook=once)
    equal(set(doc), {"traceEvents", "displayTimeUnit", "metadata"})
    assert doc["displayTimeUnit"] in ("ms", "ns")
    names, lines, complete = {}, {}, []
    for e in doc["traceEvents"]:
        assert all(isinstance(e[k], int) and 0 <= e[k] < 1 << 32 for k in ("pid", "tid")), e
        if e["ph"] == "M":
            check_name(e)
            names.setdefault((e["name"], e["pid"], e["tid"]), []).append(e["args"]["name"])
            continue
        equal(e["ph"], "X")
        lines.setdefault((e["pid"], e["tid"]), []).append(check_complete(e))
        complete.append(e)
    assert all(len(x) == 1 for x in names.values()), f"named twice: {names}"
    for pid, tid in lines:
        assert ("process_name", pid, 0) in names, (pid, names)
        if not names["process_name", pid, 0][0].startswith("queue"):
            assert ("thread_name", pid, tid) in names, (pid, tid, names)
    for line, spans in lines.items():
        check_nesting(line, spans)
    equal(len(complete), doc["metadata"]["events"])
    return complete


def test_control__trace__of_all_that_happens_is_of_the_format():
    """Jobs beside each other, a batch, callables, sessions, what is cancelled, a reset."""
    need_root()
    with Models("max_active=3", models=("dates", "xor")) as m:
        image = m.dir + "/add.img"
        ok([BUILD + "/npufs-admin", "callable", "build", TOP + "/examples/callables/add.json", image])
        ok(["cp", image, m.path + "/callables/add.img"])
        equal(command(m, "trace/start", "60 10000000: everything"), 0)
        numbers = {"datatype": "FP32", "shape": [2], "data": [1, 2]}
        m.put("c.json", json.dumps({"callable": "add", "scalars": [2], "outputs": [{"name": "z", "shape": [2]}],
                                    "inputs": [{"name": n, **numbers} for n in "xy"]}))
        for i in range(1, 10):
            m.put(f"a{i}.txt", f"{i} Mar 2024\n")
        m.put("s.json", '{"prompt": "3 Mar 2024", "session": "s", "max_new_tokens": 4}')
        m.put("b.jsonl", '{"prompt": "3 Mar 2024"}\n' * 5)
        m.put("gone.txt", "4 Mar 2024\n")
        os.unlink(m.job("gone.txt"))
        for stem in ("c", "s", "b", *(f"a{i}" for i in range(1, 10))):
            equal(m.done(stem)["state"], "done", stem)
        equal(command(m, "reset_ccu", "now: a test"), 0)
        m.put("x.json", XOR)
        m.out("x")
        equal(command(m, "trace/stop", "now: enough"), 0)
        events = check_trace_format(read(m.path + "/control/trace/last.json"))
        kinds = {e["name"] for e in events}
        equal(kinds, {"queue", "transfer_in", "compute", "checks", "transfer_out", "kv_update", "delivery",
                      "generation_open", "generation_close"})
        jobs = {m.status(stem)["job"] for stem in ("c", "s", "b", "a1", "a9", "x")}
        for kind in ("queue", "compute", "delivery"):
            assert jobs <= {str(e["args"]["job"]) for e in events if e["name"] == kind}, kind


def test_control__trace__opened_many_times__is_in_memory_once():
    """Who may look cannot have the daemon killed for its memory."""
    need_root()
    if SANITIZED:
        raise Skip("a sanitizer keeps what was freed")
    with Mount() as m:
        base = m.path + "/control/trace/"
        equal(command(m, "trace/start", "60 8000000: many"), 0)
        m.put("b.jsonl", '{"prompt":"hello"}\n' * 3000)
        m.done("b")
        equal(command(m, "trace/stop", "now: enough"), 0)
        size = len(read(base + "last.json"))
        assert size > 1 << 20, size
        files = [os.open(base + "last.json", os.O_RDONLY) for _ in range(100)]
        equal({os.pread(fd, 10, 0) for fd in files[:2]}, {b'{"traceEve'})
        before = m.rss()
        equal({os.pread(fd, 10, 0) for fd in files}, {b'{"traceEve'})
        assert m.rss() < before + 20 * 1024, f"{before} kB, then {m.rss()}"
        equal(command(m, "trace/start", "60 100000: another"), 0)
        equal(command(m, "trace/stop", "now: enough"), 0)
        assert len(read(base + "last.json")) < size
        for fd in files[1:]:
            os.close(fd)
        equal(len(os.pread(files[0], 2 * size, 0)), size, "the one that is open stays as it was")
        os.close(files[0])


def test_control__trace__bounded_ends_by_itself_and_has_no_content():
    need_root()
    with Models() as m:
        base = m.path + "/control/trace/"
        equal((read(base + "state"), read(base + "last.json")), ("none\n", ""))
        for line in ("0 100000: x", "1 1: x", "one 100000: x", "1: x", "9999 100000: x"):
            equal(command(m, "trace/start", line), errno.EINVAL, line)
        equal(command(m, "trace/start", "1 1000000: slow answers"), 0)
        equal(command(m, "trace/start", "1 1000000: another"), errno.EBUSY)
        for i in range(5):
            m.put(f"a{i}.txt", f"{i + 1} Mar 2024\n")
            equal(m.out(f"a{i}"), f"2024-03-0{i + 1}\n")
        until(lambda: read(base + "state").startswith("ended by its time\n"), 10, "its end")
        text = read(base + "last.json")
        names = {e["name"] for e in check_trace_format(text)}
        assert {"queue", "compute", "checks", "delivery"} <= names, names
        assert "Mar" not in text and "2024-03" not in text and m.store not in text
        equal(as_nobody(read, base + "last.json"), errno.EACCES)
        equal(command(m, "trace/start", "60 1000000: again"), 0)
        equal(command(m, "trace/stop", "now: enough"), 0)
        assert read(base + "state").startswith("stopped\n")
