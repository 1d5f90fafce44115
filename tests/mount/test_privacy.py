"""Nothing of one user's prompts, outputs, names or token counts is told to another (K08, K13-05).

Known to all, as in any folder that all may list: names, sizes and times of files in jobs/ itself,
and which results are there. Metrics, health and df count what all users did together.
"""

import errno
import os
import re
import stat

from harness import (DELAY, LONG_REQUEST, Mount, as_user, equal, errno_of, need_root, read, run,
                     until)

ALICE, BOB = 54321, 1002
MARK = "Zwiebelfisch"
TOKENS = 97  # of one prompt; only its owner may learn the number
PROMPT = (MARK * 9)[:TOKENS - 1]  # the echo model counts bytes, and one for the beginning
MANY = {"private/" + MARK + ".txt": PROMPT, "public.txt": PROMPT,
        "json.json": '{"prompt":"%s","output":"json","request_id":"%s"}' % (PROMPT, MARK),
        "talk.json": '{"prompt":"%s","session":"talk"}' % PROMPT,
        "stream.json": '{"prompt":"%s","stream":true,"stop":"%s"}' % (PROMPT, MARK[::-1])}
REFUSED = {"field.json": '{"%s":1}', "model.json": '{"model":"%s","prompt":"x"}',
           "id.json": '{"prompt":"x","request_id":"%s ?"}', "cut.json": '{"prompt":"%s',
           "token.json": '{"prompt":%s}', "inputs.json": '{"inputs":[{"name":"%s"}]}',
           "long.txt": "%s" * 9000}


def alice_works(m):
    """Requests of every kind, good and refused, in a folder of hers and in jobs/."""
    os.mkdir(m.job("private"), 0o700)
    for name, text in MANY.items():
        m.put(name, text)
        assert MARK in m.out(name.rpartition(".")[0])
    for name, text in REFUSED.items():
        m.send(name, text.replace("%s", MARK))
        m.done(name.rpartition(".")[0])
    m.put("plain.bin", PROMPT)
    equal(m.status("public")["prompt_tokens"], str(TOKENS), "the number to be kept")


def looked_at(path):
    """What a user gets from a path: text, or an error's name; never waiting."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as e:
        return errno.errorcode[e.errno]
    try:
        return b"".join(iter(lambda: os.read(fd, 65536), b"")).decode("utf-8", "replace")
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        os.close(fd)


def hidden_names(folder, names):
    """Names that may be there without being listed."""
    stems = {n.rpartition(".")[0] for n in names if n.endswith((".txt", ".json"))}
    return {f"{s}.{suffix}" for s in stems for suffix in ("out", "err", "status", "stream")}


def whole_tree(top):
    """{path: what a user reads there}, results that are not listed included."""
    found = {}
    for folder, _, names in os.walk(top, onerror=lambda e: found.update({e.filename: ""})):
        for name in {*names, *hidden_names(folder, names)}:
            path = os.path.join(folder, name)
            found[path[len(top):]] = looked_at(path)
    return found


def of_process(pid):
    """What /proc shows a user of the daemon."""
    names = ["cmdline", "environ", "maps", "comm", "wchan", "stack", "syscall", "io", "mounts"]
    tasks = [f"task/{t}/comm" for t in os.listdir(f"/proc/{pid}/task")]
    found = {n: looked_at(f"/proc/{pid}/{n}") for n in names + tasks}
    try:
        found["fd"] = " ".join(os.readlink(f"/proc/{pid}/fd/{n}")
                               for n in os.listdir(f"/proc/{pid}/fd"))
    except OSError as e:
        found["fd"] = errno.errorcode[e.errno]
    return found


def bobs_own(m):
    """Bob's own jobs, whose memory was another's before, and a file with a hole."""
    m.put("bob.json", '{"prompt":"b","output":"json","stream":true}')
    m.send("bob2.json", '{"prompt":"b"')
    m.out("bob")
    with open(m.job("hole.bin"), "wb") as f:
        f.truncate(100000)
    equal(set(looked_at(m.job("hole.bin"))), {"\0"}, "a hole")
    return "".join(looked_at(m.job(n)) for n in m.list() if n.startswith("bob"))


def told(texts):
    """Where the mark, Alice's uid or her number of tokens is found."""
    secret = re.compile(rf"{MARK}|{MARK[::-1]}|(?<![\w.])(?:{ALICE}|{TOKENS})(?![\w.])")
    wrong = []
    for name, text in texts.items():
        for line in text.splitlines():
            if secret.search(line) and not line.startswith("npufs_fuse_requests_total"):
                wrong.append(f"{name}: {line}")
    return wrong


def test_privacy__another_users_work__in_no_node_metric_or_log():
    """The whole tree, /proc and the log, after good and refused requests."""
    need_root()
    for option in ("log=stderr", "debug"):
        with Mount(option) as m:
            as_user(ALICE, alice_works, m)
            seen = as_user(BOB, whole_tree, m.path)
            for name in ("metrics", "health", "models/echo/state", "manifests/echo.json", "README"):
                assert seen["/" + name], name
            equal({seen["/jobs/" + n] for n in (*MANY, "public.out", "field.err", "plain.bin",
                                                "stream.stream", "model.err") if "/" not in n},
                  {"EACCES"}, "Alice's files")
            equal(seen[m.job("private")], "", "her folder")
            equal(seen[m.path + "/sessions/talk"], "", "her session")
            assert told(as_user(ALICE, whole_tree, m.path)), "she sees her own"
            equal((told(seen), [n for n in seen if MARK in n]), ([], []), "tree")
            equal(told({"own": as_user(BOB, bobs_own, m)}), [], "Bob's own files")
            equal(told(as_user(BOB, of_process, m.pid)), [], "/proc")
            nodes = {name: text for name, text in whole_tree_of_root(m).items()
                     if name != "/control/audit"}  # who tried what is what that is for
            equal(told(nodes), [], "nodes that even root reads")
            m.stop()
            equal(told({"log": read(m.log)}), [], "the log")


def whole_tree_of_root(m):
    """The nodes outside jobs/ and sessions/: they hold no user's text for anybody."""
    return {path: text for path, text in whole_tree(m.path).items()
            if not path.startswith(("/jobs", "/sessions"))}


def test_privacy__while_jobs_wait_and_run__nothing_told():
    """Queue and device do not tell whose or what."""
    need_root()
    with Mount(DELAY, "max_active=1") as m:
        for i in range(3):
            as_user(ALICE, m.put, f"a{i}.json", LONG_REQUEST.replace("s", MARK[0].lower()))
        m.put("root.json", LONG_REQUEST)
        m.runs("a0")
        seen = as_user(BOB, whole_tree, m.path)
        equal(told(seen), [], "tree")
        equal({seen[f"/jobs/a{i}.{s}"] for i in range(3) for s in ("json", "out", "status", "err",
                                                                   "stream")}, {"EACCES"}, "files")
        as_user(BOB, m.put, "b.txt", "b")
        own = as_user(BOB, read, m.job("b.status"))
        equal(told({"status": own}), [], "Bob's status")


def test_privacy__labels_of_metrics__no_users():
    """Sums only: no label tells a uid, a name or a job."""
    need_root()
    with Mount() as m:
        as_user(ALICE, alice_works, m)
        labels = set(re.findall(r"(\w+)=\"", read(m.path + "/metrics")))
        assert not labels & {"uid", "user", "job", "name", "request", "path", "pid"}, labels


def test_privacy__private_folder__its_names_cannot_be_asked_for():
    """Names in jobs/ are seen by all; in a folder of mode 0700 they are not even guessed."""
    need_root()
    with Mount() as m:
        as_user(ALICE, alice_works, m)
        names = as_user(BOB, m.list)
        assert "public.txt" in names and "private" in names, names
        st = as_user(BOB, os.stat, m.job("public.txt"))
        equal((stat.S_IMODE(st.st_mode), st.st_size), (0o600, len(PROMPT)), "as in any folder")
        there, missing = m.job(f"private/{MARK}.txt"), m.job("private/nothing")
        for call, *args in ((os.stat,), (os.open, os.O_RDONLY), (os.mkdir,), (os.unlink,),
                            (os.rmdir,), (os.truncate, 0), (os.getxattr, "user.x"), (os.listdir,),
                            (os.open, os.O_CREAT | os.O_WRONLY), (os.chmod, 0o777)):
            got = [as_user(BOB, errno_of, call, path, *args) for path in (there, missing)]
            equal(got, [errno.EACCES] * 2, call.__name__)
        r = run(["setpriv", "--reuid", str(BOB), "--clear-groups", "ls", "-la", m.job("private")])
        assert r.returncode and MARK not in r.stdout + r.stderr.replace(m.dir, ""), r


def test_privacy__shared_by_chmod__as_far_as_the_mode_says():
    """What its owner opens is open, and no other file with it."""
    need_root()
    with Mount() as m:
        as_user(ALICE, alice_works, m)
        as_user(ALICE, os.chmod, m.job("public.txt"), 0o644)
        equal(as_user(BOB, m.out, "public"), PROMPT + "\n", "the result")
        equal(as_user(BOB, m.status, "public")["uid"], str(ALICE), "the status")
        equal(as_user(BOB, errno_of, m.out, "json"), errno.EACCES, "another")
        as_user(ALICE, os.chmod, m.job("public.txt"), 0o600)
        until(lambda: as_user(BOB, errno_of, m.out, "public") == errno.EACCES, 1, "closed again")
