"""The audit trail of jobs: one record of each that ended, by digests, and nothing of what they hold."""

import hashlib
import json
import os
import signal

from harness import (BUILD, DELAY, LONG_REQUEST, REQUEST, U1, Mount, as_user, equal, need_root, ok,
                     read, run, trail_lines, until)

MEMBERS = ["seq", "time", "job", "uid", "gid", "request_sha256", "model_sha256", "output_sha256",
           "prompt_tokens", "output_tokens", "verdict", "error", "lost", "prev", "hash"]
MARK = "Zwiebelfisch"


def lines(m):
    """The trail of jobs."""
    return trail_lines(m, "audit-jobs")


def records(m):
    """The jobs' records, without checkpoints."""
    return [r for r in map(json.loads, lines(m)) if "checkpoint" not in r]


def record_of(m, stem):
    """The one of the job that STEM.status shows, as soon as it is there."""
    number = int(m.status(stem)["job"])

    def found():
        try:
            return [r for r in records(m) if r["job"] == number]
        except FileNotFoundError:
            return []

    record, = until(found, 5, f"the record of {stem}")
    return record


def sha256(text):
    """As sha256sum prints it."""
    return hashlib.sha256(text.encode()).hexdigest()


def verified(m, said="ok: jobs: records 1 to"):
    """npufs-admin finds both trails sound."""
    told = ok([BUILD + "/npufs-admin", "audit", "verify", m.store])
    assert "ok: commands: " in told and said in told, told


def test_done__text_and_document__digests_are_those_of_the_files():
    """What was asked and answered can be proven later, and is not told."""
    with Mount() as m:
        m.put("a.txt", "text\n")
        m.put("b.json", '{"prompt":"x","output":"json"}')
        for stem, suffix in (("a", "txt"), ("b", "json")):
            out, r = m.out(stem), record_of(m, stem)
            equal(list(r), MEMBERS, "members")
            equal(r["request_sha256"], sha256(read(m.job(f"{stem}.{suffix}"))), "request")
            equal(r["output_sha256"], m.status(stem)["output_sha256"], "output, as .status has it")
            equal(r["model_sha256"], m.status(stem)["model_sha256"], "model")
            equal((r["verdict"], r["error"], r["lost"]), ("done", "", 0))
            equal(str(r["prompt_tokens"]), m.status(stem)["prompt_tokens"], "prompt tokens")
            equal(str(r["output_tokens"]), m.status(stem)["output_tokens"], "output tokens")
            if stem == "b":
                equal(r["output_sha256"], sha256(out), "output")
        verified(m)


def test_not_done__refused_failed_cancelled_expired__verdict_and_error():
    """Each end is one record, however it came."""
    with Mount(DELAY, "max_active=1") as m:
        m.send("refused.json", '{"promt":"x"}')
        equal(record_of(m, "refused")["error"], "EINVAL")
        m.send("long.txt", "s" * 9000)
        m.done("long")
        r = record_of(m, "long")
        equal((r["verdict"], r["error"], r["output_sha256"]), ("failed", "E2BIG", None))
        equal(r["request_sha256"], sha256("s" * 9000), "the request of one that failed")
        m.put("late.json", '{"prompt":"%s","deadline_ms":300}' % ("s" * 300))
        m.done("late")
        r = record_of(m, "late")
        equal((r["verdict"], r["error"]), ("expired", "ETIMEDOUT"))
        m.put("c.json", LONG_REQUEST)
        m.runs("c")
        number = int(m.status("c")["job"])
        os.unlink(m.job("c.json"))
        r, = until(lambda: [r for r in records(m) if r["job"] == number], 5, "the record")
        equal((r["verdict"], r["error"]), ("cancelled", "ECANCELED"))
        equal((r["request_sha256"], r["output_sha256"]), (sha256(LONG_REQUEST), None))
        verified(m)


def test_device_error__its_name():
    """The device's own name says more than the errno."""
    with Mount("fault=Wait@3-:Timeout") as m:
        m.put("a.txt", "text")
        equal(m.done("a")["error"], "110 ETIMEDOUT")
        r = record_of(m, "a")
        equal((r["verdict"], r["error"], r["output_sha256"]), ("failed", "Timeout", None))


def test_batch__many_lines__one_record():
    """A batch is one job."""
    text = "".join(json.dumps({"prompt": f"p{i}"}) + "\n" for i in range(20))
    with Mount() as m:
        m.put("a.jsonl", text)
        out, r = m.out("a"), record_of(m, "a")
        equal((r["request_sha256"], r["output_sha256"]), (sha256(text), sha256(out)))
        m.put("b.txt", "after it")
        m.done("b")
        record_of(m, "b")
        equal(len(records(m)), 2, "records")


def test_file_without_a_job__removed__no_record():
    """touch and rm are no job; the same file written is."""
    with Mount() as m:
        m.put("a.txt", "")
        os.unlink(m.job("a.txt"))
        m.put("b.txt", "text")
        m.done("b")
        record_of(m, "b")
        equal(len(records(m)), 1, "records")


def test_another_user__owner_and_nothing_else():
    """Whose it was; no prompt, no output, no name."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, MARK + ".txt", MARK)
        as_user(U1, m.put, "x.json", json.dumps({"prompt": MARK, "request_id": MARK, "session": MARK}))
        as_user(U1, m.send, "y.json", '{"%s": 1}' % MARK)
        for stem in (MARK, "x", "y"):
            until(lambda: as_user(U1, m.state, stem) in ("done", "failed"), 10, stem)
        until(lambda: os.path.exists(m.store + "/audit-jobs") and len(records(m)) == 3, 5, "records")
        equal({(r["uid"], r["gid"]) for r in records(m)}, {(U1, U1)})
        m.stop()
        equal(run(["grep", "-rl", MARK, m.store + "/audit", m.store + "/audit-jobs"]).stdout, "")
        equal(os.stat(m.store + "/audit-jobs").st_mode & 0o777, 0o700)


def test_stop__jobs_just_ended__all_recorded_and_signed():
    """A stop writes what waits; the next start goes on with the chain."""
    with Mount() as m:
        for i in range(50):
            m.put(f"a{i}.txt", f"text {i}")
        for i in range(50):
            m.done(f"a{i}")
        m.stop()
        equal(len(records(m)), 50, "records")
        verified(m, "signed up to record 51")
        m.start()
        m.put("b.txt", "text")
        m.done("b")
        m.stop()
        equal(len(records(m)), 51, "records")
        verified(m)


def test_killed__next_start__chain_is_sound():
    """kill -9 loses at most what was not written yet."""
    need_root()
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        record_of(m, "a")
        m.proc.send_signal(signal.SIGKILL)
        m.proc.wait()
        m.wait = False
        m.start()
        until(lambda: os.path.ismount(m.path) and m.serves(), 10, "serves")
        m.put("b.txt", "text")
        m.done("b")
        record_of(m, "b")
        m.stop()
        verified(m)


def test_show__last__the_newest():
    """npufs-admin audit show --jobs prints it."""
    with Mount() as m:
        for name in ("a", "b", "c"):
            m.put(name + ".txt", name)
            m.done(name)
            record_of(m, name)
        show = [BUILD + "/npufs-admin", "audit", "show", m.store, "--jobs"]
        equal(ok(show).splitlines(), lines(m))
        equal(ok(show + ["--last", "2"]).splitlines(), lines(m)[-2:])
        assert "verdict" not in ok(show[:-1]), "the trail of commands"


def test_broken__verify__says_which_trail():
    """One of them is broken: both are looked at."""
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        record_of(m, "a")
        m.stop()
        path = m.store + "/audit-jobs/00000001.jsonl"
        text = read(path).replace('"verdict":"done"', '"verdict":"dome"')
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        r = run([BUILD + "/npufs-admin", "audit", "verify", m.store])
        equal(r.returncode, 1)
        assert "ok: commands: " in r.stdout, r.stdout
        assert "audit-jobs: the audit trail is broken in 00000001.jsonl, line 1" in r.stderr, r.stderr
        m.start()
        m.put("b.txt", "text")
        equal(m.out("b"), "text\n", "jobs go on")
        until(lambda: m.metric("npufs_job_audit_lost_total") == 1, 5, "counted")
        assert "jobs are not audited" in read(m.log), read(m.log)


def test_off__no_trail():
    """job_audit=off."""
    with Mount("job_audit=off") as m:
        m.put("a.json", REQUEST)
        m.done("a")
        m.stop()
        assert not os.path.exists(m.store + "/audit-jobs")
