"""Faults planted with -o fault: what a user sees of a device that misbehaves."""

import errno
import json
import os
import threading
import time

from harness import Mount, equal, errno_of, read, run, took, until
from test_life import Unstarted, mounts
from test_models import XOR, Models

HELLO = '{"prompt":"hello"}'


def planted(*rules, options=()):
    """A mount with these faults."""
    return Mount("fault=" + "/".join(rules), *options)


def recovered(m, times=1):
    """The device was opened anew and serves again."""
    until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready again")
    assert f"\nrecoveries: {times}\n" in read(m.path + "/health"), read(m.path + "/health")


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
        with took(0.1, "health"):
            read(m.path + "/health")
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
