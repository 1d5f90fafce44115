"""Faults planted with -o fault: what a user sees of a device that misbehaves."""

import errno
import json
import os
import threading
import time

from harness import Mount, at_once, equal, errno_of, read, run, took, until
from test_life import Unstarted, mounts
from test_models import XOR, Models

HELLO = '{"prompt":"hello"}'


def planted(*rules, options=()):
    """A mount with these faults."""
    return Mount("fault=" + "/".join(rules), *options)


def recovered(m, times=1):
    """The device was opened anew and serves again; who waits is answered before that."""
    def is_so():
        health = read(m.path + "/health")
        return health.startswith("ready") and f"\nrecoveries: {times}\n" in health

    until(is_so, 10, "recovered")


def test_fault__planted__health_and_version_say_so():
    """Nobody takes such a device for a real one."""
    with planted("Wait@1000000:nan") as m:
        for name in ("health", "version"):
            text = read(f"{m.path}/{name}")
            assert "device: null+fault\n" in text and "note: faults are planted" in text, text
    with Mount() as m:
        assert "planted" not in read(m.path + "/health") + read(m.path + "/version")


def test_fault__misspelt__refused_with_the_right_word_and_its_place():
    """Before anything is mounted."""
    for spec, said in (("Wiat@1:nan", "did you mean Wait?"), ("Wait@x:nan", "at byte 5"),
                       ("Wait@1:DeviceCrush", "did you mean DeviceCrash?"),
                       ("Free@1:DeviceBusy", "it can: hang")):
        with Unstarted("fault=" + spec) as m:
            r = run(m.command())
            assert r.returncode != 0 and said in r.stderr, r
            equal(mounts(m), 0, spec)


def test_fault__busy_twice__tried_again_and_the_answer_right():
    """DeviceBusy is retried with the same buffers."""
    with planted("infer@1:DeviceBusy", "infer@2:DeviceBusy") as m:
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n", "answer")
        assert "\nrecoveries: 0\n" in read(m.path + "/health")


def test_fault__busy_for_ever__the_job_fails_and_nothing_is_reset():
    """The tries are bounded, and no reset follows."""
    with planted("infer@*:DeviceBusy") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.EBUSY, "answer")
        assert "\nrecoveries: 0\n" in read(m.path + "/health")


def test_fault__slow_load__alive_all_the_time_and_sessions_begin():
    """Starting holds up neither health nor who comes early (K16-07)."""
    with Models("fault=configure@1:delay=1500", wait=False) as m:
        until(m.serving, 10, "mounted")
        os.mkdir(m.path + "/sessions/early")
        m.put("a.json", '{"prompt":"3 Mar 2024","session":"early"}')
        seen, state = set(), m.path + "/sessions/early/state"
        while "ready" not in seen:
            with took(0.7, "health"):  # half of the load
                seen.add(read(m.path + "/health").split("\n")[0])
            with took(0.7, "a session"):
                assert read(state).startswith(("in use\n", "idle\n")), read(state)
            time.sleep(0.02)
        equal(seen, {"starting", "ready"}, "health")
        equal(m.out("a"), "2024-03-03\n", "answer")


def test_fault__session_s_job_fails__the_session_is_as_before():
    """Neither its length nor its text suffers from a device that fails in the middle."""
    ask = '{"prompt":"hello","session":"s"}'

    def length(m):
        try:
            return int(read(m.path + "/sessions/s/length"))
        except FileNotFoundError:
            return 0

    with planted("Wait@3:nan", "Wait@9:DeviceCrash") as m:
        ended = []
        for i in range(8):
            m.put(f"{i}.json", ask)
            ended.append(m.done(f"{i}")["state"])
            until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready again")
            until(lambda: length(m) == 11 * ended.count("done"), 5, f"the length after {ended}")
            if ended[-1] == "done":
                equal(m.out(f"{i}"), "hello\n", "answer")
        equal(ended.count("failed"), 2, "failed")


def test_fault__wait_hangs__deadline_answered_health_quick_unmount_bounded():
    """A job is answered at its deadline whatever the device does."""
    with planted("Wait@2:hang", options=("drain=0",)) as m:
        m.put("a.json", json.dumps({"prompt": "hello\n", "deadline_ms": 300}))
        with took(1, "the deadline's answer"):
            equal(errno_of(m.out, "a"), errno.ETIMEDOUT, "answer")
        at_once(m.path + "/health")
        m.put("b.json", HELLO)
        answers = []
        reader = threading.Thread(target=lambda: answers.append(errno_of(m.out, "b")))
        reader.start()
        until(lambda: m.metric("npufs_parked_requests") == 1, 5, "parked")
        with took(6, "the end"):
            m.proc.terminate()
            reader.join()
            m.ends(status=1)
        equal(answers, [errno.ESHUTDOWN], "who waited")
        equal(mounts(m), 0, "mounts")


def test_fault__wait_hangs_without_deadline__quarantine_told_and_the_rest_goes_on():
    """What does not come back is given up after wait_limit=; only the device stands still."""
    with planted("Wait@2:hang", options=("wait_limit=300ms", "drain=0")) as m:
        m.put("a.json", HELLO)
        with took(2, "the answer"):
            equal(errno_of(m.out, "a"), errno.ETIMEDOUT, "answer")
        until(lambda: "quarantine: " in read(m.path + "/health"), 5, "told")
        health = at_once(m.path + "/health")
        assert health.startswith("recovering\n") and "action: " in health, health
        assert not os.path.exists(m.path + "/ready")
        m.put("b.json", json.dumps({"prompt": "x", "deadline_ms": 200}))
        equal(errno_of(m.out, "b"), errno.ETIMEDOUT, "a deadline meanwhile")
        m.put("c.json", HELLO)
        equal(m.status("c")["state"], "queued")
        os.unlink(m.job("c.json"))
        equal(sorted(os.listdir(m.path + "/models")), ["echo"])
        equal(m.metric("npufs_quarantines_total"), 1)
        m.proc.terminate()
        m.ends(status=1)
        equal(mounts(m), 0, "mounts")


def test_fault__wait_comes_back_late__recovered_by_itself():
    with planted("Wait@2:delay=1500", options=("wait_limit=300ms",)) as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.ETIMEDOUT, "answer")
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n", "who waited")
        recovered(m)


def test_fault__device_missing_at_the_start__waited_for():
    with planted("CreateVDevice@1:NoDevice/CreateVDevice@2:DeviceUnavailable") as m:
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n", "answer")
        assert read(m.path + "/health").startswith("ready\n")


def test_fault__assert__nothing_more_is_submitted_and_health_says_what_to_do():
    with planted("Wait@2:Assert") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.EIO, "answer")
        until(lambda: read(m.path + "/health").startswith("failed\n"), 5, "failed")
        assert "action: tell the operator" in read(m.path + "/health")
        equal(errno_of(m.put, "b.json", HELLO), errno.EIO, "refused at the write")
        m.put("inert.bin", "kept")
        equal(read(m.job("inert.bin")), "kept")


def test_fault__compute_unit_fails__never_delivered_and_recovered():
    """A Wait that succeeded is not enough: the status counts."""
    with planted("GetStatus@1:ccu") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.EIO, "answer")
        assert "DeviceCrash" in m.err("a")["reason"], m.err("a")
        recovered(m)
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n", "the next")


def test_fault__no_number__never_delivered():
    """Output with a NaN is refused whatever the device says."""
    with planted("Wait@3:nan") as m:
        m.put("a.json", HELLO)
        equal(errno_of(m.out, "a"), errno.EIO, "answer")
        equal(errno_of(read, m.job("a.out")), errno.EIO, "nothing of it")
        m.put("b.json", HELLO)
        equal(m.out("b"), "hello\n", "the next")


def test_fault__every_error_of_wait__the_job_has_it_and_the_daemon_goes_on():
    """One of each class, one after the other."""
    errors = (("Timeout", errno.ETIMEDOUT), ("DeviceCrash", errno.EIO),
              ("DeviceUnavailable", errno.ENXIO), ("InvalidValue", errno.EINVAL))
    for name, err in errors:
        with planted(f"Wait@1:{name}") as m:
            m.put("a.json", HELLO)
            equal(errno_of(m.out, "a"), err, name)
            m.put("b.json", HELLO)
            equal(m.out("b"), "hello\n", f"after {name}")


def test_fault__kv_not_freed__answered_and_told():
    """A void call that did nothing is found out by asking after it."""
    with planted("Free@1:silent", options=("kv_sequences=1",)) as m:
        m.put("a.json", HELLO)
        equal(m.out("a"), "hello\n", "answer")
        until(lambda: "NotExpected" in read(m.path + "/health"), 5, "told")


def test_fault__golden_run_wrong__model_never_serves():
    """Finite wrong numbers are found by the golden run, before any traffic."""
    with Models("fault=Wait@1:corrupt", models=("xor",)) as m:
        health = read(m.path + "/health")
        assert health.startswith("failed\n") and "golden" in health, health
        assert m.send("a.json", XOR) or errno_of(m.out, "a"), "it was answered"


def test_fault__crash_in_the_middle_of_a_text__told_and_the_next_one_right():
    """What a recovered device answers is what it answered before."""
    request = '{"prompt":"3rd of March, 2024"}'
    with Models("fault=Wait@9:DeviceCrash/configure@2:delay=200") as m:
        m.put("a.json", request)
        equal(errno_of(m.out, "a"), errno.EIO, "answer")
        recovered(m)
        m.put("b.json", request)
        equal(m.out("b"), "2024-03-03\n", "the next")


def test_fault__both_models_given_up__both_serve_after_one_cool_down():
    """What may pass is tried again for every model, not for the last one alone."""
    golden_runs = "/".join(f"Wait@{i}:Timeout" for i in range(1, 7))
    with Models("fault=" + golden_runs, models=("dates", "xor"), wait=False) as m:
        until(m.serving, 10, "mounted")
        until(lambda: "\nnext_try: " in read(m.path + "/health"), 10, "given up")
        until(lambda: read(m.path + "/models/xor/state").startswith("failed"), 10, "xor too")
        assert read(m.path + "/models/dates/state").startswith("failed")
        until(lambda: read(m.path + "/health").startswith("ready"), 45, "tried again")
        m.put("a.json", '{"prompt":"3 Mar 2024"}')
        equal(m.out("a"), "2024-03-03\n", "the default model")
        m.put("x.json", XOR)
        assert '"data": [1]' in m.out("x")


# It waits for half a minute.
test_fault__both_models_given_up__both_serve_after_one_cool_down.plain = True
