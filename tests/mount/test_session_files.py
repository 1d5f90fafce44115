"""sessions/ under the programs that people use: each does what it says, or is refused in words.

The sessions here are of the device that repeats its prompt: a turn of n bytes adds 2n + 1 tokens.
"""

import fcntl
import os
import signal
import subprocess
import termios
import threading
import time

from harness import (DELAY, LONG_REQUEST, SLOW, U1, U2, Mount, as_user, equal, errno_of, need,
                     need_root, ok, read, run, sh_as, took, tool, until, write)
from test_read import ranged, sent, spliced
from test_sessions import E, idle, session, shown

LONG = LONG_REQUEST.replace("{", '{"session":"s",', 1)
FILES = ("length", "limit", "model", "owner", "state")


def speak(m, name="s", n=20, stem="speak"):
    """A turn with so many bytes."""
    m.put(stem + ".json", '{"prompt":"%s","session":"%s"}' % ("x" * n, name))
    equal(m.done(stem)["state"], "done", name)
    idle(m, name)
    os.unlink(m.job(stem + ".json"))


# --- writing length -------------------------------------------------------------------------------

WRITERS = (
    ("echo 40 > length", 40), ("echo 39 >> length", 39), ("printf 38 > length", 38),
    ("printf 37 >> length", 37), ("echo 36 | tee length", 36), ("echo 35 | tee -a length", 35),
    ("echo 34 | dd of=length", 34), ("echo 33 | dd of=length conv=notrunc,fsync", 33),
    ("echo 32 | dd of=length bs=1", 32), ("printf 31 | dd of=length bs=1", 31),
    ("echo 30 | dd of=length oflag=append conv=notrunc bs=1", 30), ("echo 29 1<> length", 29),
    ("echo 28 > $D/n; cp $D/n length", 28), ("echo 27 > $D/n; cat $D/n > length", 27),
    ("exec 5<> length; read x <&5; test $x = 27; echo 26 >&5", 26),
    ("python3 -c 'open(\"length\", \"w\").write(\"25\\n\")'", 25),
    ("python3 -c 'open(\"length\", \"r+\").write(\"24\")'", 24),
    ("awk 'BEGIN { print 23 > \"length\" }'", 23), ("echo 22 | busybox tee length", 22),
    ("printf '1c\\n21\\n.\\nw\\nq\\n' | ed -s length", 21), ("sort -o length length", 21),
    ("vim -es -u NONE -c '%d|call setline(1, 20)' -c wq length", 20),
    (": > length", 20), ("truncate -s 0 length", 20), ("printf '' > length", 20),
    ("(echo 19; echo 18) > length", 18), ("cat length > $D/n; cat $D/n > length", 18))
REFUSED = (
    ("echo 19 > length", "not supported"), ("printf 19 > length", "not supported"),
    ("printf 19 | dd of=length bs=1", "not supported"),
    ("printf 1x | dd of=length bs=1", "Invalid"),
    ("cat limit > length", "not supported"), ("printf '9\\r\\n' > length", "Invalid"),
    ("printf '\\357\\273\\2779' > length", "Invalid"), ("echo > length", "Invalid"),
    ("seq 9 > length", "Invalid"), ("truncate -s 1 length", "Invalid"),
    ("echo 1 > limit", "denied"), ("echo 1 >> state", "denied"), ("cp length owner", "denied"),
    ("truncate -s 0 model", "denied"), ("sed -i s/1/0/ length", "not supported"),
    ("busybox sed -i s/1/0/ length", "not supported"),
    ("echo 9 > $D/n; mv $D/n length", "permitted"), ("install -m 600 $D/n length", "permitted"),
    ("cp --remove-destination $D/n length", "permitted"),
    ("rm -f length", "permitted"), ("touch length", "permitted"), ("touch new", "not supported"),
    ("chmod 644 length", "permitted"), ("chown 1 length", "permitted"),
    ("ln length l", "not supported"), ("ln -s length l", "not supported"),
    ("mv length l", "not supported"), ("mv length ../../jobs/l", "not supported"),
    ("cp ../../jobs/x.bin l", "not supported"), ("mv ../../jobs/x.bin l", "not supported"),
    ("mkdir new", "not supported"), ("mkfifo new", "not supported"), ("rmdir length", "Not a dir"))


def shell(m, command, folder="sessions/s"):
    """bash in a session's folder."""
    return run(["bash", "-c", f"D={m.dir}; " + command], cwd=os.path.join(m.path, folder))


def test_length__programs_that_write_it__the_tail_is_cut():
    """Shells, tee, dd, editors, with or without a line end, byte by byte (K01-01, K03-01, K03-06)."""
    for program in ("busybox", "ed", "vim", "awk"):
        need(program)
    with Mount() as m:
        speak(m)
        for command, want in WRITERS:
            r = shell(m, command)
            equal((shown(m, "s"), r.returncode), (str(want), 0), f"{command}: {r.stderr}")
        equal(sorted(os.listdir(session(m, "s"))), sorted(FILES), "nothing is left")


def test_length__what_cannot_be_done__refused_in_words_and_nothing_changes():
    """Never "Function not implemented", and never half of it (K06-04, K06-05, K07-04)."""
    with Mount() as m:
        speak(m)
        write(session(m, "s", "length"), "18\n")
        m.put("x.bin", "8")
        for command, word in REFUSED:
            r = shell(m, command)
            assert r.returncode and word in r.stderr, (command, r)
            equal(shown(m, "s"), "18", command)
        equal(sorted(os.listdir(session(m, "s"))), sorted(FILES), "nothing is left")


def test_length__in_pieces__as_a_file_would_hold_it():
    """A number ends with its line, or with the close, which tells what came between."""
    with Mount("sim_delay=10ms") as m:
        speak(m)
        fd = os.open(session(m, "s", "length"), os.O_RDWR)
        for number in ("14", "12"):
            equal(errno_of(os.write, fd, b"99"), E.EOPNOTSUPP, "longer")
            for byte in number + "\n":
                os.write(fd, byte.encode())
            equal(shown(m, "s"), number, "taken at its line end")
        os.pwrite(fd, b"11", 0)
        equal(shown(m, "s"), "12", "it waits")
        os.pwrite(fd, b"10", 0)
        equal(shown(m, "s"), "11", "another number, not its rest")
        m.put("l.json", LONG)
        m.runs("l")
        equal(errno_of(os.close, fd), E.EBUSY, "close")


# --- the folder -----------------------------------------------------------------------------------

FOLDERS = (
    ("mv s t", "not supported"), ("mv s ../jobs/s", "not supported"), ("mv s $D/s", "permitted"),
    ("mv ../jobs/d d", "not supported"), ("ln -s s t", "not supported"), ("touch s", "permitted"),
    ("touch t", "not supported"), ("chmod 755 s", "permitted"), ("chown 1 s", "permitted"),
    ("rm -rf s", "permitted"), ("rmdir -p ../sessions", "permitted"), ("mv ../sessions ../t",
    "permitted"), ("tar -C $D -xf $D/a.tar", "cannot"), ("mkdir s", "exists"),
    ("mkdir .t", "Invalid"), ("mkdir s/t", "not supported"), ("mknod t p", "not supported"),
    ("echo 1 > t", "not supported"), ("ln ../jobs/x.bin t", "not supported"))


def test_folder__programs_that_would_change_it__refused_and_as_it_was():
    """Nothing is moved, linked, given away or removed by half (K06-01, K07-01, K07-04)."""
    with Mount() as m:
        speak(m)
        os.mkdir(m.job("d"))
        m.put("x.bin", "8")
        os.mkdir(m.dir + "/t")
        ok(f"tar -C {m.path}/sessions -cf {m.dir}/a.tar s")
        before = ok(f"ls -lRi {m.path}/sessions")
        for command, word in FOLDERS:
            command = command.replace("-C $D -xf", "-xf")
            r = shell(m, command, "sessions")
            assert r.returncode and word.lower() in r.stderr.lower(), (command, r)
            equal(ok(f"ls -lRi {m.path}/sessions"), before, command)


def test_folder__copied_in__an_empty_session_and_the_files_refused():
    """A saved session cannot be put back, and that is said."""
    need("rsync")
    with Mount() as m:
        speak(m)
        ok(["cp", "-a", session(m, "s"), m.dir + "/t"])
        for command in ("cp -r", "rsync -a"):
            r = run(f"{command} {m.dir}/t {m.path}/sessions/")
            assert r.returncode and r.stderr, (command, r)
            equal(shown(m, "t"), "0", command)
            os.rmdir(session(m, "t"))
        equal(shown(m, "s"), "41", "the other one")


def test_mkdir__its_ways__a_session_of_mode_0700():
    """The mode asked for does not count; a mode that cannot be is said (K07-02)."""
    with Mount() as m:
        for command, err in (("mkdir a", ""), ("mkdir -p a b", ""), ("mkdir -m 700 c", ""),
                             ("install -d -m 700 d", ""), ("mkdir -m 755 e", "permitted"),
                             ("umask 0; mkdir f", ""), ("umask 777; mkdir g", "")):
            r = shell(m, command, "sessions")
            assert (err in r.stderr) if err else not r.stderr, (command, r)
        for name in "abcdefg":
            equal(oct(os.stat(session(m, name)).st_mode & 0o7777), "0o700", name)
        ok(f"cd {m.path}/sessions && rmdir a/ b && rmdir [c-g]")
        equal(os.listdir(m.path + "/sessions"), [], "left")


def test_names__too_long__enametoolong_as_in_jobs():
    """One limit of names for the whole mount (K06-08)."""
    with Mount() as m:
        for folder in ("", "/jobs", "/models", "/models/echo", "/sessions"):
            for n in (256, 300, 1024, 2000):
                path = f"{m.path}{folder}/{'n' * n}"
                for call in (os.stat, os.mkdir, os.unlink, os.rmdir, read):
                    equal(errno_of(call, path), E.ENAMETOOLONG, f"{call.__name__} {folder} {n}")
            equal(errno_of(os.stat, f"{m.path}{folder}/{'n' * 255}"), E.ENOENT, folder)
        equal(errno_of(os.mkdir, session(m, "n" * 255)), E.EINVAL, "more than a session may have")


# --- reading --------------------------------------------------------------------------------------


def test_files__every_reader__the_same_bytes():
    """Zero copy, small buffers, and those who go by st_size (K04-01, K04-02, K04-05, K04-13)."""
    need("busybox")
    with Mount() as m:
        speak(m)
        for name in FILES:
            path = session(m, "s", name)
            text = read(path)
            equal(os.stat(path).st_size, len(text), name)
            for got in (spliced(path), sent(path, m.dir + "/copy"),
                        ranged(path, m.job("copy.bin"))):
                equal(got.decode(), text, name)
            for command in ("cat ", "busybox cat ", "tail -n 9 ", "dd status=none bs=1 if=",
                            "dd status=none bs=3 if=", "grep '' "):
                equal(ok(command + path), text, command + name)
            fd = os.open(path, os.O_RDONLY)
            equal((os.isatty(fd), errno_of(fcntl.ioctl, fd, termios.TIOCGWINSZ, b"\0" * 8)),
                  (False, E.ENOTTY), name)
            os.close(fd)


def test_files__open_while_it_changes__whole_texts_and_fstat_agrees():
    """A descriptor reads the new text from its start, and never half of each (K04-05, K10-02)."""
    with Mount() as m:
        speak(m)
        length, state = (os.open(session(m, "s", f), os.O_RDONLY) for f in ("length", "state"))
        equal((os.read(length, 2), os.read(state, 2)), (b"41", b"id"), "begun")
        write(session(m, "s", "length"), "0")
        equal((os.read(length, 9), os.read(state, 99)), (b"\n", b"le\nkv: kept\n"), "to its end")
        for fd, want in ((length, b"0\n"), (state, b"idle\n")):
            equal((os.read(fd, 9), os.pread(fd, 99, 0), os.fstat(fd).st_size),
                  (b"", want, len(want)), "from its start")
        speak(m)
        for fd, want in ((length, b"41\n"), (state, b"idle\nkv: kept\n")):
            equal((os.pread(fd, 99, 0), os.fstat(fd).st_size), (want, len(want)), "grown")
            os.close(fd)


def test_files__tail_follows__shows_what_is_new():
    """tail -f sees the text grow, and can be killed (K04-10)."""
    with Mount() as m:
        os.mkdir(session(m, "s"))
        tail = subprocess.Popen(["tail", "-s", "0.1", "-n", "+1", "-f", session(m, "s", "model")],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5 * SLOW)  # nothing yet
        speak(m)
        until(lambda: shown(m, "s", "model") == "echo", 5, "its model")
        time.sleep(0.5 * SLOW)
        tail.terminate()
        got, errors = tail.communicate(timeout=5 * SLOW)
        equal((got, errors, tail.returncode), ("echo\n", "", -signal.SIGTERM), "what is new")


# --- who, when, how many --------------------------------------------------------------------------


def test_private__root_was_there_before__others_refused_whatever_is_cached():
    """No order of visits opens it (K08-01, K08-02)."""
    need_root()
    with Mount() as m:
        as_user(U1, os.mkdir, session(m, "s"))
        ok(f"ls -lR {m.path}/sessions && cat {session(m, 's')}/*")
        for name in FILES:
            for call in (os.stat, read, os.unlink, os.truncate):
                args = (0,) if call == os.truncate else ()
                got = as_user(U2, errno_of, call, session(m, "s", name), *args)
                equal(got in (E.EACCES, E.EPERM), True, f"{call.__name__} {name}")
        for command in ("rmdir s", "mv s t", "rm -rf s", "echo 0 > s/length", "cat s/length",
                        "ls s", "cd s"):
            r = sh_as(U2, f"cd {m.path}/sessions && {command}")
            assert r.returncode and r.stderr, command
        equal(as_user(U1, shown, m, "s"), "0", "its owner")
        equal(sh_as(U2, f"df {session(m, 's')}").returncode, 0, "df (K07-11)")


def test_owner__the_request_file_s__not_the_writer_s():
    """What root writes into a user's file makes the user's session (K01-05)."""
    need_root()
    with Mount() as m:
        as_user(U1, m.put, "a.json", "")
        m.put("a.json", '{"prompt":"x","session":"s"}')
        equal(m.done("a")["uid"], str(U1), "the job's")
        equal(as_user(U1, shown, m, "s", "owner"), f"uid: {U1}\ngid: {U1}")
        equal(os.stat(session(m, "s", "length")).st_uid, U1, "the file's")


def test_seen_at_once__made_and_gone_by_jobs__no_cache_lags():
    """"No such file" is not remembered, nor a name that is no more (K10-01)."""
    with Mount(DELAY) as m:
        for i in range(10):
            equal(errno_of(os.stat, session(m, "s", "length")), E.ENOENT, "before")
            m.put("a.json", LONG)
            os.stat(session(m, "s", "length"))
            equal((os.listdir(m.path + "/sessions"), shown(m, "s", "state")), (["s"], "in use"))
            os.unlink(m.job("a.json"))
            until(lambda: not os.path.exists(session(m, "s")), 5, "gone with its job")
            equal(os.listdir(m.path + "/sessions"), [], f"round {i}")
        equal((m.metric("npufs_sessions"), m.metric("npufs_jobs_running")), (0, 0), "figures")


def test_cancelled__fifty_times__no_session_or_sequence_is_lost():
    """What is cancelled leaves the device and its session (K05-07)."""
    with Mount("sim_delay=2ms", "kv_sequences=1", "sessions=2") as m:
        for i in range(50):
            m.put("a.json", LONG.replace('"s"', f'"s{i}"'))
            m.runs("a")
            os.unlink(m.job("a.json"))
            until(lambda: m.metric("npufs_sessions") == 0, 5, "gone")
        with took(2, "the next"):
            speak(m)
        equal(shown(m, "s"), "41")


def test_readers__many_wait_for_a_session_s_answer__sessions_answers_at_once():
    """Waiting costs nobody anything (K05-01)."""
    with Mount(DELAY) as m:
        m.put("a.json", LONG)
        readers = [subprocess.Popen(["cat", m.job("a.out")], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for _ in range(64)]
        until(lambda: m.metric("npufs_parked_requests") == 64, 20, "they wait")
        with took(1, "ls -lR and cat"):
            ok(f"ls -lR {m.path}/sessions && cat {session(m, 's')}/state")
        os.unlink(m.job("a.json"))
        for r in readers:
            equal(r.wait(5 * SLOW), 1, "a reader")


def test_writers__eight_ask_at_once__one_after_the_other_and_no_token_lost():
    """One job of a session at a time, whoever is first (K19-01)."""
    done, busy = [], []

    def ask(i):
        for k in range(10):
            err = m.send(f"w{i}-{k}.json", '{"prompt":"xx","session":"s"}')
            if m.done(f"w{i}-{k}")["state"] == "done":
                done.append(err)
            else:
                busy.append(m.err(f"w{i}-{k}")["error"].split()[1])

    with Mount("sim_delay=1ms") as m:
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30 * SLOW)
        idle(m, "s")
        equal((len(done) + len(busy), set(busy) <= {"EBUSY"}, set(done)), (80, True, {0}))
        equal(shown(m, "s"), str(5 * len(done)), "tokens of those that were done")
        assert len(done) > 1, "none was accepted"


def test_listing__many_sessions__complete_stable_and_quick():
    """Positions, numbers and removal while listing (K07-13, K11-01, K11-03, K11-05)."""
    folder = "/sessions"
    with Mount("sessions=3000", "user_sessions=3000") as m:
        for i in range(3000):
            os.mkdir(session(m, f"s{i:04}"))
        equal(errno_of(os.mkdir, session(m, "more")), E.ENOSPC, "the limit")
        for path in (m.path + folder, session(m, "s0000")):
            assert ok([tool("dir"), "inodes", path]).startswith("entries"), path
        with took(5, "ls -l"):
            equal(len(ok(["ls", "-l", m.path + folder]).splitlines()), 3001, "entries")
        with took(0.5, "health"):
            read(m.path + "/health")
        seen = set()
        with os.scandir(m.path + folder) as entries:
            for e in entries:
                assert e.name not in seen, e.name
                seen.add(e.name)
                os.rmdir(e.path)
        equal((len(seen), os.listdir(m.path + folder)), (3000, []), "removed while listing")
        equal(m.metric("npufs_sessions"), 0)


def test_memory__sessions_made_and_removed__comes_back():
    """A name that was is not remembered (K11-06)."""
    with Mount() as m:
        speak(m)
        before = m.rss()
        for i in range(20000):
            os.mkdir(session(m, f"n{i}"))
            os.rmdir(session(m, f"n{i}"))
        assert SLOW > 1 or m.rss() - before < 2048, (before, m.rss())
        equal(m.metric("npufs_sessions"), 1)


def test_locks__of_a_session__as_everywhere():
    """A script can take a session for itself (K17-01)."""
    need("flock")
    with Mount() as m:
        os.mkdir(session(m, "s"))
        for path in (session(m, "s"), session(m, "s", "length")):
            holder = subprocess.Popen(["flock", path, "sleep", "60"], start_new_session=True)
            until(lambda p=path: run(["flock", "-n", p, "true"]).returncode == 1, 5, "held")
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
            until(lambda p=path: run(["flock", "-n", p, "true"]).returncode == 0, 5, "free")


def test_xattr_and_tmpfile__not_offered__without_noise():
    """ls -Z, getfattr and O_TMPFILE (K07-08, K07-09)."""
    with Mount() as m:
        os.mkdir(session(m, "s"))
        assert "?????" not in ok(["ls", "-laZ", session(m, "s")])
        for path in (session(m, "s"), session(m, "s", "length")):
            equal(errno_of(os.getxattr, path, "user.x") in (E.ENODATA, E.EOPNOTSUPP), True)
            equal(errno_of(os.setxattr, path, "user.x", b"1"), E.EOPNOTSUPP, "setting")
        equal(errno_of(os.open, session(m, "s"), os.O_TMPFILE | os.O_RDWR), E.EOPNOTSUPP)


def test_kill__a_session_s_job_runs__told_and_nothing_stale():
    """A crash ends sessions; their jobs say so; open files are not another's (K09-01, K09-02)."""
    with Mount("sim_delay=50ms", "max_active=1") as m:
        speak(m, n=2)
        fd = os.open(session(m, "s", "length"), os.O_RDONLY)
        m.put("a.json", LONG)
        m.runs("a")
        m.put("b.json", '{"prompt":"x","session":"t"}')
        m.kill()
        m.start()
        equal([errno_of(call, fd) for call in (lambda f: os.read(f, 9), os.close)],
              [E.ENOTCONN] * 2, "a file open before")
        for stem in "ab":
            equal((m.done(stem)["state"], m.err(stem)["error"].split()[1]), ("failed", "ESTALE"))
        equal(os.listdir(m.path + "/sessions"), [], "sessions")
        speak(m)
        equal(shown(m, "s"), "41", "a new one of that name")
