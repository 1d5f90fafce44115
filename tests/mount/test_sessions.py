"""Conversations that go on: sessions/NAME and the field "session"."""

import errno
import json
import os
import stat
import time

import harness
from harness import (U1, U2, Mount, as_user, equal, errno_of, need_root, ok, read, run, until,
                     write)
from test_models import Models

E = errno
TURNS = ([1, 403, 407, 261, 378], [300, 301], [432, 383, 286], [310], [265, 277, 391, 400])
NEW = 24


def session(m, name, file=""):
    """Path of a session, or of a file in it."""
    return os.path.join(m.path, "sessions", name, file).rstrip("/")


def shown(m, name, file="length"):
    """What a session's file says."""
    return read(session(m, name, file))[:-1]


def idle(m, name):
    """Wait until no job has it."""
    until(lambda: shown(m, name, "state").startswith("idle"), 10, f"{name} is idle")


class Asker:
    """Asks the public model at temperature 0, with tokens in and out."""

    def __init__(self, m):
        self.m, self.n = m, 0

    def ask(self, tokens, new=NEW, **more):
        """The tokens that follow."""
        self.n += 1
        got = self.m.ask(f"q{self.n}", {"model": "stories", "tokens": tokens, "temperature": 0,
                                        "max_new_tokens": new, "output": "json", **more})
        equal(got["usage"]["prompt_tokens"], len(tokens), "its own tokens only")
        return got["tokens"]

    def turn(self, name, so_far, prompt):
        """One turn of a session, and the same tokens in one go; all tokens then."""
        alone = self.ask(so_far + prompt)
        got = self.ask(prompt, session=name)
        equal(got, alone, f"turn with {len(so_far)} tokens before")
        assert len(got) > 2, got
        equal(shown(self.m, name), str(len(so_far + prompt + got)), "length")
        return so_far + prompt + got


# --- the same as in one go ------------------------------------------------------------------------


def test_turns__public_model__as_all_tokens_in_one_go():
    with Models(models=(), stories=True) as m:
        asker, all_tokens = Asker(m), []
        for prompt in TURNS:
            all_tokens = asker.turn("chat", all_tokens, prompt)
            equal(shown(m, "chat", "state"), "idle\nkv: kept")
        equal((shown(m, "chat", "limit"), shown(m, "chat", "model")), ("512", "stories"))
        equal(m.metric("npufs_session_evictions_total"), 0)
        equal(m.metric("npufs_sessions"), 1)


def test_turns__another_model_between__the_same():
    with Models("model=stories", models=("dates",), stories=True) as m:
        asker, all_tokens = Asker(m), []
        for i, prompt in enumerate(TURNS[:3]):
            all_tokens = asker.turn("chat", all_tokens, prompt)
            m.put(f"d{i}.json", json.dumps({"model": "dates", "prompt": "3 May 2021"}))
            equal(m.done(f"d{i}")["state"], "done")
            equal(shown(m, "chat", "state"), "idle\nkv: evicted")


def test_turns__two_sessions_on_one_sequence__the_same():
    with Models("kv_sequences=1", models=(), stories=True) as m:
        asker, a, b = Asker(m), [], []
        for prompt in TURNS[:3]:
            a = asker.turn("a", a, prompt)
            b = asker.turn("b", b, [1] + prompt[1:])
        assert m.metric("npufs_session_evictions_total") >= 5
        equal(m.metric("npufs_device_errors_total"), 0)


def test_trim__then_on__as_the_same_tokens_in_one_go():
    with Models(models=(), stories=True) as m:
        asker, all_tokens = Asker(m), []
        for prompt in TURNS[:2]:
            all_tokens = asker.turn("chat", all_tokens, prompt)
        for k in (len(all_tokens) - 1, 20, 5, 1):
            write(session(m, "chat", "length"), f"{k}\n")
            equal(shown(m, "chat"), str(k))
            asker.turn("chat", all_tokens[:k], TURNS[3])
        write(session(m, "chat", "length"), "0")
        asker.turn("chat", [], TURNS[0])


def test_text__goes_on_without_a_second_beginning():
    ask = {"model": "stories", "temperature": 0, "max_new_tokens": 12, "output": "json"}
    with Models(models=(), stories=True) as m:
        first = m.ask("a", {**ask, "prompt": "Once upon a time", "session": "s"})
        alone = m.ask("b", {**ask, "prompt": "The dog"})
        second = m.ask("c", {**ask, "prompt": "The dog", "session": "s", "echo": True})
        equal(second["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"] - 1)
        assert second["text"].startswith(" The dog"), second["text"]
        total = sum(sum(x["usage"].values()) for x in (first, second))
        equal(shown(m, "s"), str(total))


def test_context__full__told_and_trimmed():
    with Models(models=(), stories=True) as m:
        asker = Asker(m)
        asker.ask([1] + [300] * 400, new=50, session="s")
        n = int(shown(m, "s"))
        m.put("more.json", json.dumps({"tokens": [300] * 80, "session": "s", "max_new_tokens": 50}))
        equal(m.done("more")["state"], "failed")
        err = m.err("more")
        equal(err["error"].split()[1], "E2BIG", str(err))
        assert f"the session's {n} tokens" in err["reason"], err
        equal(shown(m, "s"), str(n), "as before")


# --- one job at a time ----------------------------------------------------------------------------


def test_second_job__busy_until_the_first_has_ended():
    ask = {"session": "s", "prompt": "Once", "max_new_tokens": 400}
    with Models("sim_delay=5ms", "max_active=1", models=(), stories=True) as m:
        m.put("a.json", json.dumps(ask))
        m.runs("a")
        equal(m.send("b.json", json.dumps(ask)), E.EBUSY)
        equal(m.err("b")["error"].split()[1], "EBUSY")
        equal(shown(m, "s", "state"), "in use")
        equal(errno_of(os.rmdir, session(m, "s")), E.EBUSY)
        equal(errno_of(write, session(m, "s", "length"), "0"), E.EBUSY)
        os.unlink(m.job("a.json"))
        until(lambda: not os.path.exists(session(m, "s")), 10, "what the job made goes with it")
        m.put("c.json", json.dumps({**ask, "max_new_tokens": 3}))
        equal(m.done("c")["state"], "done")
        m.put("d.json", json.dumps({**ask, "deadline_ms": 50}))
        equal(m.done("d")["state"], "expired")
        idle(m, "s")
        os.rmdir(session(m, "s"))


def test_bad_places__refused():
    batch = '{"custom_id":"1","prompt":"x","session":"s"}\n'
    with Models(models=("xor",), stories=True) as m:
        m.put("b.jsonl", batch)
        answer = json.loads(m.out("b"))
        equal(answer["error"]["name"], "EOPNOTSUPP", str(answer))
        assert "session" in answer["error"]["reason"], answer
        tensors = {"model": "xor", "session": "s", "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 0]}]}
        equal(m.send("t.json", json.dumps(tensors)), E.EOPNOTSUPP)
        equal(m.send("n.json", '{"prompt":"x","session":"a/b"}'), E.EINVAL)
        equal(os.listdir(m.path + "/sessions"), [])


def test_another_model__refused_at_write_and_without_one_the_session_s():
    ask = {"session": "s", "model": "stories", "prompt": "Once", "max_new_tokens": 3}
    with Models("model=dates", models=("dates",), stories=True) as m:
        m.put("a.json", json.dumps(ask))
        equal(m.done("a")["state"], "done")
        equal(m.send("b.json", json.dumps({**ask, "model": "dates"})), E.EINVAL)
        assert '"stories"' in m.err("b")["reason"], m.err("b")
        del ask["model"]
        m.put("c.json", json.dumps(ask))
        equal(m.done("c")["model"], "stories")


# --- whose ----------------------------------------------------------------------------------------


def test_owner__others_cannot_use_read_trim_or_free():
    need_root()
    ask = json.dumps({"session": "s", "prompt": "Once", "max_new_tokens": 3})
    with Models(models=(), stories=True) as m:
        as_user(U1, m.put, "a.json", ask)
        m.done("a")
        s = os.stat(session(m, "s"))
        equal((s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)), (U1, U1, 0o700))
        equal(as_user(U2, m.send, "b.json", ask), E.EACCES)
        equal(m.err("b")["error"].split()[1], "EACCES")
        equal(as_user(U2, os.listdir, m.path + "/sessions"), ["s"])
        for call in (os.stat, read, lambda p: write(p, "0")):
            equal(as_user(U2, errno_of, call, session(m, "s", "length")), E.EACCES)
        for call in (os.listdir, os.chdir):
            equal(as_user(U2, errno_of, call, session(m, "s")), E.EACCES)
        assert as_user(U2, errno_of, os.rmdir, session(m, "s")) in (E.EPERM, E.EACCES)
        equal(as_user(U1, shown, m, "s", "owner"), f"uid: {U1}\ngid: {U1}")
        before = int(as_user(U1, shown, m, "s"))
        m.put("c.json", ask)
        equal(m.done("c")["state"], "done", "root may")
        assert int(shown(m, "s")) > before
        equal(as_user(U1, os.stat, session(m, "s")).st_uid, U1)
        as_user(U1, os.rmdir, session(m, "s"))


def test_mkdir__its_maker_s_and_for_its_maker_only():
    need_root()
    with Models(models=(), stories=True) as m:
        as_user(U1, os.mkdir, session(m, "s"))
        equal(errno_of(os.mkdir, session(m, "s")), E.EEXIST)
        for name in (".s", "a b", "x" * 65, "é"):
            equal(errno_of(os.mkdir, session(m, name)), E.EINVAL, name)
        equal([shown(m, "s", x) for x in ("length", "state")], ["0", "idle"])
        equal(read(session(m, "s", "model")), "")
        ask = json.dumps({"session": "s", "prompt": "Once", "max_new_tokens": 3})
        equal(as_user(U2, m.send, "a.json", ask), E.EACCES)
        as_user(U1, m.put, "b.json", ask)
        equal(m.done("b")["state"], "done")


def test_limits__too_many__refused():
    need_root()
    ask = '{"session":"%s","prompt":"Once","max_new_tokens":1}'
    with Models("sessions=3", "user_sessions=2", models=(), stories=True) as m:
        for name in "ab":
            as_user(U1, os.mkdir, session(m, name))
        equal(as_user(U1, errno_of, os.mkdir, session(m, "c")), E.EDQUOT)
        equal(as_user(U1, m.send, "c.json", ask % "c"), E.EDQUOT)
        assert "rmdir" in m.err("c")["action"], m.err("c")
        as_user(U2, os.mkdir, session(m, "d"))
        equal(as_user(U2, errno_of, os.mkdir, session(m, "e")), E.ENOSPC)
        equal(as_user(U2, m.send, "e.json", ask % "e"), E.ENOSPC)
        as_user(U1, m.put, "a.json", ask % "a")
        equal(m.done("a")["state"], "done", "one that is there is none more")
        os.rmdir(session(m, "b"))
        as_user(U2, os.mkdir, session(m, "e"))


def test_idle__too_long__freed():
    ask = '{"session":"s","prompt":"Once","max_new_tokens":1}'
    with Models("session_idle=1s", models=(), stories=True) as m:
        m.put("a.json", ask)
        m.done("a")
        freed = m.calls("KvManager")
        assert os.path.isdir(session(m, "s"))
        until(lambda: not os.path.exists(session(m, "s")), 10, "freed")
        until(lambda: m.calls("KvManager") > freed, 10, "its KV, too")


def test_restart__queued_job_of_a_session__fails_and_says_so():
    slow = ("sim_delay=50ms", "max_active=1", "drain=0")
    with Models(*slow, models=(), stories=True) as m:
        m.put("a.json", json.dumps({"session": "s", "prompt": "Once", "max_new_tokens": 2}))
        m.done("a")
        m.put("long.json", json.dumps({"prompt": "Once", "max_new_tokens": 200}))
        m.put("b.json", json.dumps({"session": "s", "prompt": "Once", "max_new_tokens": 2}))
        m.put("c.json", json.dumps({"session": "t", "prompt": "Once", "max_new_tokens": 2}))
        m.runs("long")
        m.stop()
        m.start()
        for stem in "bc":
            equal(m.done(stem)["state"], "failed")
            equal(m.err(stem)["error"].split()[1], "ESTALE")
            assert "KV" in m.err(stem)["reason"], m.err(stem)
        equal(m.state("a"), "done")
        equal(os.listdir(m.path + "/sessions"), [])
        m.kill()
        m.start()
        equal((m.state("b"), m.state("a")), ("failed", "done"))


# --- files ----------------------------------------------------------------------------------------


def test_length__words__exact_or_refused():
    rows = ((b"", 0), (b"x\n", E.EINVAL), (b"-1", E.EINVAL), (b" 1", E.EINVAL), (b"1 ", E.EINVAL),
            (b"+1", E.EINVAL), (b"0x1", E.EINVAL), (b"1.0", E.EINVAL), (b"\n", E.EINVAL),
            (b"1\n\n", E.EINVAL), (b"1\0", E.EINVAL), (b"99999999999", E.EINVAL),
            (b"18446744073709551617", E.EINVAL), (b"513", E.EINVAL), (b"512", E.EOPNOTSUPP),
            (b"9\n", E.EOPNOTSUPP), (b"7\n", 0), (b"06", 0), (b"4\n", 0), (b"5", E.EOPNOTSUPP))
    length = 8
    with Models(models=(), stories=True) as m:
        Asker(m).ask([1, 403, 407, 261], new=4, session="s")
        equal(shown(m, "s"), "8")
        for words, want in rows:
            with open(session(m, "s", "length"), "wb", buffering=0) as f:
                equal(errno_of(f.write, words), want, str(words))
            length = length if want or not words else int(words)
            equal(shown(m, "s"), str(length), str(words))
        ok(f"echo 3 > {session(m, 's', 'length')}")
        ok(f"echo 2 >> {session(m, 's', 'length')}")
        equal(shown(m, "s"), "2")
        for name in ("limit", "owner", "model", "state"):
            equal(errno_of(write, session(m, "s", name), "1"), E.EACCES, name)
        for name in ("length", "limit", "owner", "model", "state"):
            mode = stat.S_IMODE(os.stat(session(m, "s", name)).st_mode)
            equal(mode, 0o600 if name == "length" else 0o400, name)


def test_names__nothing_is_renamed_copied_or_linked():
    with Mount() as m:
        os.mkdir(session(m, "a"))
        m.put("x", "inert")
        here, a = m.path + "/sessions", session(m, "a")
        for call, args in ((os.rename, (a, here + "/b")), (os.rename, (m.job("x"), here + "/x")),
                           (os.link, (m.job("x"), here + "/x")), (os.symlink, ("a", here + "/x")),
                           (write, (here + "/x", "1")), (write, (a + "/x", "1")),
                           (os.mkdir, (a + "/x",)), (os.mkfifo, (here + "/x",)),
                           (os.rename, (a + "/length", a + "/limit"))):
            equal(errno_of(call, *args), E.EOPNOTSUPP, f"{call.__name__} {args}")
        for call, args in ((os.unlink, (a + "/length",)), (os.chmod, (a, 0o777)),
                           (os.chown, (a, U1, U1)), (os.utime, (a + "/length",))):
            equal(errno_of(call, *args), E.EPERM, f"{call.__name__} {args}")
        equal(errno_of(os.rmdir, a + "/length"), E.ENOTDIR)
        equal(errno_of(os.rmdir, here + "/none"), E.ENOENT)
        equal(sorted(os.listdir(a)), ["length", "limit", "model", "owner", "state"])


def test_numbers__never_used_again():
    with Mount() as m:
        os.mkdir(session(m, "a"))
        first = os.stat(session(m, "a")).st_ino
        with open(session(m, "a", "length"), "wb", buffering=0) as f:
            os.rmdir(session(m, "a"))
            os.mkdir(session(m, "a"))
            equal(errno_of(f.write, b"0"), E.ESTALE)
        assert os.stat(session(m, "a")).st_ino != first


def test_crawlers__find_all_and_change_nothing():
    with Models(models=(), stories=True) as m:
        Asker(m).ask([1, 403], new=4, session="s")
        for i in range(15):
            os.mkdir(session(m, f"e{i}"))
        before = run(f"ls -lR {m.path}/sessions").stdout
        ok(f"find {m.path}/sessions -type f | wc -l")
        equal(ok(f"find {m.path}/sessions -name length | wc -l").strip(), "16")
        ok(f"tar cf /dev/null -C {m.path} sessions")
        ok(f"grep -r . {m.path}/sessions")
        ok(f"cp -r {m.path}/sessions {m.dir}/copy")
        equal(read(m.dir + "/copy/s/length"), "6\n")
        equal(run(f"ls -lR {m.path}/sessions").stdout, before)
        readme = read(m.path + "/README")
        for name in os.listdir(session(m, "s")):
            assert f"sessions/NAME/{name}" in readme, name


def test_many_at_once__each_conversation_as_if_alone():
    with Models("kv_sequences=3", "max_active=3", models=(), stories=True) as m:
        asker = Asker(m)
        alone = [asker.ask(p, new=20) for p in TURNS]
        for turn in range(3):
            for i, prompt in enumerate(TURNS):
                m.put(f"t{turn}s{i}.json", json.dumps(
                    {"session": f"s{i}", "tokens": prompt, "temperature": 0, "output": "json",
                     "max_new_tokens": 20}))
            for i, prompt in enumerate(TURNS):
                got = json.loads(m.out(f"t{turn}s{i}"))["tokens"]
                if turn == 0:
                    equal(got, alone[i])
                equal(m.state(f"t{turn}s{i}"), "done")
        for i in range(len(TURNS)):
            os.rmdir(session(m, f"s{i}"))
        time.sleep(0.1)
        equal(harness.run(f"ls {m.path}/sessions").stdout, "")


def test_room__sessions_have_all__a_golden_run_makes_room():
    with Models("kv_sequences=1", "golden=100ms") as m:
        m.put("a.json", json.dumps({"session": "chat", "prompt": "3 Mar 2024",
                                    "max_new_tokens": 4}))
        equal(m.out("a"), "2024\n")
        runs = m.metric("npufs_golden_runs_total")
        until(lambda: m.metric("npufs_golden_runs_total") >= runs + 3, 10, "golden runs")
        assert "\nrecoveries: 0\n" in read(m.path + "/health"), read(m.path + "/health")
        equal(shown(m, "chat", "state"), "idle\nkv: evicted")
        m.put("b.json", json.dumps({"session": "chat", "tokens": [45]}))
        equal(m.out("b"), "03-03\n")
