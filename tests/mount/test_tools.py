"""Everyday programs on jobs/: each leaves the right content and starts one run a request."""

import errno
import hashlib
import itertools
import mmap
import os
import subprocess
import time

from harness import (DELAY, LONG_REQUEST, REQUEST, SLOW, Mount, equal, errno_of, need, ok, read,
                     run, took, write)

STREAMED = '{"prompt":"%s","stream":true}' % ("s" * 30)


def ran(m, runs, **texts):
    """These outputs, and so many runs in all."""
    for stem, text in texts.items():
        equal(m.out(stem), text, stem + ".out")
    equal(m.started(), runs, "runs")


def folder_of_requests(path):
    """A folder with two requests in it, one in a subfolder, and a plain file."""
    os.makedirs(path + "/sub")
    write(path + "/a.txt", "one")
    write(path + "/sub/b.json", REQUEST)
    write(path + "/notes", "plain")
    os.utime(path + "/a.txt", (1000, 1000))


def filled(m, name):
    """Were the two requests of such a folder run, once each?"""
    ran(m, 2, **{name + "/a": "one\n", name + "/sub/b": "x\n"})
    equal(m.list(name), ["a.out", "a.status", "a.txt", "notes", "sub"], name)
    equal(os.stat(m.job(name + "/a.txt")).st_mtime, 1000, "time")
    equal(read(m.job(name + "/notes")), "plain", "the plain file")


# --- copies and archives -----------------------------------------------------------------------


def test_cp__folder_in__each_request_runs_once():
    """cp -r, -a and -p keep what they promise and run nothing twice."""
    for copy in ("cp -a", "cp -rp"):
        with Mount() as m:
            folder_of_requests(m.dir + "/f")
            ok(f"{copy} {m.dir}/f {m.jobs}/f")
            filled(m, "f")


def test_cp__results_out__same_bytes_and_times():
    """Results are files to copy: alone, and with their folder."""
    with Mount() as m:
        folder_of_requests(m.dir + "/f")
        ok(f"cp -a {m.dir}/f {m.jobs}/f; cat {m.jobs}/f/a.out {m.jobs}/f/sub/b.out")
        ok(f"cp -p {m.jobs}/f/a.out {m.dir}/a.out; cp -a {m.jobs}/f {m.dir}/g")
        equal(read(m.dir + "/a.out"), "one\n", "cp -p")
        for name in ("a.out", "a.status", "a.txt", "sub/b.out"):
            mine, theirs = os.stat(f"{m.dir}/g/{name}"), os.stat(m.job("f/" + name))
            equal((mine.st_mtime_ns, mine.st_mode, mine.st_size),
                  (theirs.st_mtime_ns, theirs.st_mode, theirs.st_size), name)
        ran(m, 2)


def test_cp__over_a_finished_request__one_new_run():
    """cp opens with O_TRUNC; cp --remove-destination and cp -b replace the name."""
    with Mount() as m:
        m.put("a.txt", "first")
        m.done("a")
        for i, option in enumerate(("", "--remove-destination", "-b", "-f")):
            write(m.dir + "/new", f"text {i}")
            ok(f"cp {option} {m.dir}/new {m.job('a.txt')}")
            ran(m, 2 + i, a=f"text {i}\n")
        equal(m.list(), ["a.out", "a.status", "a.txt", "a.txt~"], "left")


def test_mv__in_within_and_out__content_goes_along():
    """mv between file systems copies and removes; within the mount nothing runs again."""
    with Mount() as m:
        folder_of_requests(m.dir + "/f")
        ok(f"mv {m.dir}/f {m.jobs}/f")
        assert not os.path.exists(m.dir + "/f")
        filled(m, "f")
        ok(f"mv {m.jobs}/f {m.jobs}/g; mkdir {m.jobs}/h; mv {m.jobs}/g/a.txt {m.jobs}/h/")
        ran(m, 2, **{"h/a": "one\n", "g/sub/b": "x\n"})
        ok(f"mv {m.jobs}/h/a.out {m.dir}/a.out; mv {m.jobs}/h/a.txt {m.dir}/a.txt")
        equal((read(m.dir + "/a.out"), read(m.dir + "/a.txt")), ("one\n", "one"), "moved out")
        equal(m.list("h"), [], "left")
        ran(m, 2)


def test_rsync__folder_in_and_out__twice_changes_nothing():
    """rsync -a runs each request once; a second call finds nothing to do."""
    need("rsync")
    with Mount() as m:
        folder_of_requests(m.dir + "/f")
        ok(f"rsync -a {m.dir}/f {m.jobs}/")
        filled(m, "f")
        equal(ok(f"rsync -ai {m.dir}/f {m.jobs}/"), "", "the second call")
        ran(m, 2)
        ok(f"rsync -a {m.jobs}/f/ {m.dir}/copy/")
        equal(read(m.dir + "/copy/a.out") + read(m.dir + "/copy/sub/b.out"), "one\nx\n", "copied")
        equal(ok(f"rsync -ai {m.jobs}/f/ {m.dir}/copy/"), "", "the second copy")
        write(m.dir + "/f/a.txt", "two")
        ok(f"rsync -a --inplace {m.dir}/f {m.jobs}/")
        ran(m, 3, **{"f/a": "two\n"})


def test_tar__folder_in_and_out__runs_once():
    """tar sets modes, owners and times after it wrote."""
    with Mount() as m:
        folder_of_requests(m.dir + "/f")
        ok(f"tar -C {m.dir} -czf {m.dir}/f.tgz f; tar -C {m.jobs} -xpzf {m.dir}/f.tgz")
        filled(m, "f")
        ok(f"tar -C {m.jobs} -cf {m.dir}/out.tar f; tar -C {m.jobs} -df {m.dir}/out.tar f")
        ok(f"tar -C {m.dir} -xf {m.dir}/out.tar f/a.out")
        equal(read(m.dir + "/f/a.out"), "one\n", "a result from the archive")


def test_install__mode_asked_for__set_and_one_run():
    """install -m writes, then sets the mode."""
    with Mount() as m:
        write(m.dir + "/a", "text")
        ok(f"install -m 640 {m.dir}/a {m.job('a.txt')}; install -D {m.dir}/a {m.job('d/e/b.txt')}")
        equal(oct(os.stat(m.job("a.txt")).st_mode & 0o7777), "0o640", "mode")
        ran(m, 2, a="text\n", **{"d/e/b": "text\n"})


def test_ln__hard_link__refused():
    """One name a request: ln fails with EPERM and leaves nothing."""
    with Mount() as m:
        m.put("a.txt", "text")
        m.done("a")
        for name in ("a.txt", "a.out"):
            r = run(["ln", m.job(name), m.job("link")])
            assert r.returncode == 1 and "not permitted" in r.stderr, r
        equal(m.list(), ["a.out", "a.status", "a.txt"], "left")


# --- editors and writers -----------------------------------------------------------------------


def edited(editor, *command):
    """Change one word of a finished request with an editor: one more run and nothing left over."""
    need(editor)
    with Mount() as m:
        m.put("v.txt", "one and more\n")
        m.done("v")
        r = run([editor, *command, m.job("v.txt")])
        equal(r.returncode, 0, f"{editor}: {r.stdout} {r.stderr}")
        equal(read(m.job("v.txt")), "two and more\n", "the request")
        ran(m, 2, v="two and more\n")
        equal([n for n in m.list() if n != "v.txt~"], ["v.out", "v.status", "v.txt"], "left")


def test_vim__script_saves__one_new_run():
    """vim, with and without a backup, in place and by a new file."""
    need("vim.tiny")
    for options in ("", "set backup", "set backupcopy=yes", "set backupcopy=no writebackup"):
        edited("vim.tiny", "-es", "-u", "NONE", "-c", options, "-c", "%s/one/two/", "-c", "wq")


def test_ex_ed_sed_perl__save_in_place__one_new_run():
    """Other ways to change a file."""
    edited("ex", "-s", "-c", "%s/one/two/|x")
    edited("sed", "-i~", "s/one/two/")
    edited("perl", "-pi", "-e", "s/one/two/")
    edited("busybox", "sed", "-i", "s/one/two/")


def test_tee__two_requests_and_append__one_run_each():
    """tee writes several at once; -a goes on where the text ended."""
    with Mount() as m:
        ok(f"echo one | tee {m.job('a.txt')} {m.job('b.txt')}")
        ran(m, 2, a="one\n", b="one\n")
        ok(f"echo two | tee -a {m.job('a.txt')}")
        ran(m, 3, a="one\ntwo\n")


def test_dd__over_the_start_and_behind_the_end__one_run_each():
    """dd conv=notrunc keeps the tail, oflag=append the head."""
    with Mount() as m:
        dd = f"dd of={m.job('a.txt')} status=none"
        ok(f"printf 'abcdefgh' | {dd} bs=3")
        ran(m, 1, a="abcdefgh\n")
        ok(f"printf 'XY' | {dd} conv=notrunc bs=1 seek=2")
        ran(m, 2, a="abXYefgh\n")
        ok(f"printf '!' | {dd} oflag=append conv=notrunc")
        ran(m, 3, a="abXYefgh!\n")
        ok(f"printf 'z' | {dd} conv=fsync oflag=sync")
        ran(m, 4, a="z\n")
        equal(ok(f"dd if={m.job('a.out')} status=none bs=1 skip=1"), "\n", "dd skip")


def test_zero_copy__into_a_request__one_run_each():
    """sendfile, splice and copy_file_range write as write does."""
    with Mount() as m:
        write(m.dir + "/src", "text")
        m.put("src", "text")
        for i, name in enumerate("abc"):
            r, w = os.pipe()
            os.write(w, b"text")
            path = m.dir + "/src" if name != "c" else m.job("src")  # that one stays in the mount
            with open(path, "rb") as src, open(m.job(name + ".txt"), "wb") as dst:
                a, b = src.fileno(), dst.fileno()
                moved = (lambda: os.sendfile(b, a, 0, 9), lambda: os.splice(r, b, 4),
                         lambda: os.copy_file_range(a, b, 9))[i]()
                equal(moved, 4, name)
            os.close(r)
            os.close(w)
        ran(m, 3, a="text\n", b="text\n", c="text\n")


# --- many at once ------------------------------------------------------------------------------


def test_xargs__four_at_once__each_its_answer():
    """xargs -P 4 as a simple client."""
    with Mount() as m:
        ask = f"printf %s '{{}}' > {m.jobs}/'{{}}'.txt && cat {m.jobs}/'{{}}'.out"
        got = ok(f"seq 40 | xargs -P 4 -I {{}} sh -c \"{ask}\"")
        equal(sorted(got.split(), key=int), [str(i) for i in range(1, 41)], "answers")
        ran(m, 40)


def test_parallel__four_at_once__each_its_answer():
    """GNU's or moreutils' parallel."""
    need("parallel")
    with Mount() as m:
        write(m.dir + "/ask", f'printf %s $1 > {m.jobs}/$1.txt && cat {m.jobs}/$1.out')
        gnu = "GNU" in run(["parallel", "--version"]).stdout
        got = ok(["parallel", "-j", "4", "sh " + m.dir + "/ask" if gnu else "sh", *(
            [] if gnu else [m.dir + "/ask"]), ":::" if gnu else "--", *map(str, range(20))])
        equal(sorted(got.split(), key=int), [str(i) for i in range(20)], "answers")
        ran(m, 20)


MAKEFILE = """all: $(patsubst %.q,%.a,$(wildcard *.q))
%.a: %.q
\tcp $< $(JOBS)/$*.txt
\tcat $(JOBS)/$*.out > $@
"""


def test_make__four_at_once__answers_made_once():
    """Answers as targets, prompts as sources; results in the mount as sources."""
    with Mount("sim_delay=1ms") as m:
        write(m.dir + "/Makefile", MAKEFILE)
        for i in range(12):
            write(f"{m.dir}/p{i}.q", f"prompt {i}")
        ok(["make", "-s", "-j4", "-C", m.dir, "JOBS=" + m.jobs])
        equal([read(f"{m.dir}/p{i}.a") for i in range(12)], [f"prompt {i}\n" for i in range(12)])
        again = ok(["make", "-j4", "-C", m.dir, "JOBS=" + m.jobs])
        assert "othing to be done" in again, again
        ran(m, 12)
        write(m.dir + "/sum.mk", "all.txt: a.out b.out\n\tcat $^ > $@\n%.out: %.txt ;\n")
        ok(f"cd {m.jobs} && printf 1 > a.txt && printf 2 > b.txt && make -sj4 -f {m.dir}/sum.mk")
        ran(m, 15, all="1\n2\n")


PYTHON = """
import concurrent.futures, pathlib, sys
jobs = pathlib.Path(sys.argv[1])
def ask(i):
    (jobs / f"p{i}.txt").write_text(f"ask {i}")
    return (jobs / f"p{i}.out").read_text()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(*pool.map(ask, range(30)), sep="", end="")
"""

PERL = r"""
for my $i (0 .. 29) {
    open(my $f, '>', "$ARGV[0]/q$i.txt") or die; print $f "ask $i"; close($f) or die;
    open($f, '<', "$ARGV[0]/q$i.out") or die; print <$f>; close($f);
}
"""


def test_scripts__python_perl_busybox__ask_and_read():
    """The languages' own files."""
    need("perl", "busybox")
    want = "".join(f"ask {i}\n" for i in range(30))
    shell = ('i=0; while [ $i -lt 30 ]; do printf "ask $i" > $0/r$i.txt; cat $0/r$i.out; '
             'i=$((i+1)); done')
    with Mount() as m:
        equal(ok(["python3", "-c", PYTHON, m.jobs]), want, "python")
        equal(ok(["perl", "-e", PERL, m.jobs]), want, "perl")
        equal(ok(["busybox", "sh", "-c", shell, m.jobs]), want, "busybox")
        ran(m, 90)


# --- locks and turns ---------------------------------------------------------------------------


def test_flock__command_line__turns_on_one_request():
    """flock(1) around a request makes its users take turns."""
    need("flock")
    with Mount() as m:
        turn = f"printf %s $1 > {m.jobs}/t.txt; cat {m.jobs}/t.out"
        write(m.dir + "/turn", turn)
        got = ok(f"for i in 1 2 3 4 5 6 7 8; do flock {m.job('lock')} sh {m.dir}/turn $i & done; "
                 "wait")
        equal(sorted(got.split()), list("12345678"), "each its own answer")
        ran(m, 8)


def test_exclusive_create__as_a_lock__one_holder_at_a_time():
    """O_EXCL on an inert name is a lock."""
    with Mount() as m:
        line = (f"n=0; while [ $n -lt 5 ]; do if (set -C; : > {m.jobs}/lock) 2>/dev/null; then "
                f"read c < {m.dir}/count; echo $((c+1)) > {m.dir}/count; rm {m.jobs}/lock; "
                "n=$((n+1)); fi; done")
        write(m.dir + "/count", "0\n")
        ok(["bash", "-c", f"for i in 1 2 3 4; do ({line}) & done; wait"], 40)
        equal(read(m.dir + "/count"), "20\n", "each counted")
        equal(m.list(), [], "left")


APPEND = ("import os,sys\nfd=os.open(sys.argv[1],os.O_WRONLY|os.O_APPEND|os.O_CREAT,0o600)\n"
          "for i in range(200): os.write(fd,(sys.argv[2]*9+'\\n').encode())")


def test_append__two_processes__lines_whole_and_requests_one_at_a_time():
    """A log of several writers keeps every line; a request has one writer at a time."""
    with Mount() as m:
        both = [subprocess.Popen(["python3", "-c", APPEND, m.job("log"), c]) for c in "ab"]
        equal([p.wait(20 * SLOW) for p in both], [0, 0], "writers")
        lines = read(m.job("log")).split("\n")
        equal((sorted(set(lines)), len(lines)), (["", "a" * 9, "b" * 9], 401), "the log")
        first = os.open(m.job("a.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(first, b"one ")
        equal(errno_of(os.open, m.job("a.txt"), os.O_WRONLY | os.O_APPEND), errno.EBUSY, "second")
        os.close(first)
        ran(m, 1, a="one \n")
        write(m.job("a.txt"), "two", "a")
        ran(m, 2, a="one two\n")


# --- readers -----------------------------------------------------------------------------------


def test_find__newer_size_delete__as_on_a_disk():
    """find's tests and its -delete."""
    with Mount() as m:
        m.put("old.txt", "o" * 600)
        m.done("old")
        ok(["touch", "-d", "2001-01-01", m.job("old.txt")])
        m.put("stamp", "")
        m.put("new.txt", "n")
        m.done("new")
        find = f"cd {m.jobs} && find . -type f"
        equal(sorted(ok(f"{find} -newer old.txt -name '*.txt'").split()), ["./new.txt"], "newer")
        equal(sorted(ok(f"{find} -newer stamp -name 'new.*'").split()),
              ["./new.out", "./new.status", "./new.txt"], "newer than the stamp")
        equal(sorted(ok(f"{find} -size -3 -size +1 -name 'old.[ot]*t'").split()),
              ["./old.out", "./old.txt"], "size in blocks")
        equal(ok(f"{find} -size 2c").split(), ["./new.out"], "size in bytes")
        equal(ok(f"{find} -empty").split(), ["./stamp"], "empty")
        ok(f"{find} -name '*.out' -delete")
        equal(m.list(), ["new.status", "new.txt", "old.status", "old.txt", "stamp"], "left")
        ok(["find", m.jobs, "-mindepth", "1", "-name", "*.txt", "-delete"])
        equal(m.list(), ["stamp"], "left")


def test_grep__idle_request_beside__does_not_hang():
    """What grep -r meets in a listing can be read at once."""
    with Mount(DELAY) as m:
        m.put("idle.json", "")
        m.put("busy.json", LONG_REQUEST)
        m.runs("busy")
        m.put("word", "needle")
        with took(3, "grep -r"):
            equal(ok(["grep", "-rl", "needle", m.jobs]), m.job("word") + "\n", "found")
        equal((m.state("idle"), m.state("busy")), ("writing", "running"), "states")


def test_readers__head_wc_diff_cmp_sha256sum__agree():
    """Each reads the whole result, or the part it asks for."""
    with Mount() as m:
        text = "line one\nline two\n" * 50
        m.put("a.txt", text[:-1])
        m.out("a")
        write(m.dir + "/want", text)
        out = m.job("a.out")
        equal(ok(["head", "-c", "8", out]), "line one", "head -c")
        equal(ok(["head", "-n", "1", out]), "line one\n", "head -n")
        equal(ok(["tail", "-c", "9", out]), "line two\n", "tail -c")
        equal(ok(["tail", "-n", "2", out]), "line one\nline two\n", "tail -n")
        equal(ok(f"wc -lc < {out}").split(), ["100", str(len(text))], "wc")
        ok(["cmp", out, m.dir + "/want"])
        ok(["diff", "-q", out, m.dir + "/want"])
        s = m.status("a")
        sums = f"{s['output_sha256']}  a.out\n{s['request_sha256']}  a.txt\n"
        equal(ok("sha256sum -c", cwd=m.jobs, input=sums), "a.out: OK\na.txt: OK\n", "sha256sum")
        equal(hashlib.sha256(text.encode()).hexdigest(), sums.split()[0], "digest")
        ran(m, 1)


def test_readers__started_before_the_end__wait_and_agree():
    """wc, cmp and diff on an output that is still to come."""
    with Mount("sim_delay=5ms") as m:
        write(m.dir + "/want", "w" * 30 + "\n")
        for name, command in (("a", "cmp {} {}"), ("b", "diff {} {}"), ("c", "head -c 30 {}"),
                              ("d", "wc -c < {}"), ("e", "sha256sum {}"), ("f", "sort {}"),
                              ("g", "cp {} {}.copy"), ("h", "cat {} | cmp - {}")):
            m.put(name + ".txt", "w" * 30)
            ok(command.format(m.job(name + ".out"), m.dir + "/want"))
            equal(m.state(name), "done", command)


def test_tail__stream_followed__text_to_the_end():
    """tail -f shows the pieces as they come."""
    with Mount("sim_delay=10ms") as m:
        m.put("s.json", STREAMED)
        r = run(["timeout", "1.5", "tail", "-n", "+1", "-f", m.job("s.stream")])
        equal((r.returncode, r.stdout, r.stderr), (124, "s" * 30 + "\n", ""), "tail -f")
        equal(ok(["tail", "-c", "4", m.job("s.stream")]), "sss\n", "the end")


def test_mmap__finished_results__as_read():
    """A finished result can be mapped, shared for reading and private."""
    with Mount() as m:
        text = "m" * 5
        m.put("a.txt", text)
        m.done("a")
        for name in ("a.out", "a.status", "a.txt"):
            with open(m.job(name), "rb") as f:
                want = f.read()
                for flags, prot in ((mmap.MAP_SHARED, mmap.PROT_READ),
                                    (mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)):
                    with mmap.mmap(f.fileno(), 0, flags, prot) as seen:
                        equal(seen[:], want, f"{name} {flags}")
                        if prot & mmap.PROT_WRITE:
                            seen[0:1] = b"!"
                equal(os.pread(f.fileno(), 9999, 0), want, "after a private change")
        with open(m.job("a.txt"), "r+b") as f:
            equal(errno_of(mmap.mmap, f.fileno(), 5, mmap.MAP_SHARED), errno.ENODEV, "to write")
        ran(m, 1)


# --- inspectors --------------------------------------------------------------------------------

EVENTS = (  # what a user does in jobs/, and the events of files in it, in order
    ("printf x > a.txt", "CREATE a.txt, OPEN a.txt, MODIFY a.txt, CLOSE_WRITE a.txt"),
    ("cat a.out", "OPEN a.out, ACCESS a.out, CLOSE_NOWRITE a.out"),
    ("printf y > a.txt; cat a.out", "OPEN a.txt, MODIFY a.txt, CLOSE_WRITE a.txt, "
     "OPEN a.out, ACCESS a.out, CLOSE_NOWRITE a.out"),
    ("printf z > .b; mv .b b.txt; cat b.out", "CREATE .b, OPEN .b, MODIFY .b, CLOSE_WRITE .b, "
     "MOVED_FROM .b, MOVED_TO b.txt, OPEN b.out, ACCESS b.out, CLOSE_NOWRITE b.out"),
    ("chmod 644 a.txt", "ATTRIB a.txt"),
    ("rm a.out", "DELETE a.out"),
    ("rm a.txt", "DELETE a.txt"),
    ("printf { > c.json; sleep 0.1", "CREATE c.json, OPEN c.json, MODIFY c.json, "
     "CLOSE_WRITE c.json"),
    ("mkdir d; rmdir d", "CREATE d, DELETE d"),
)


def events_of(m, command):
    """What inotifywait tells while a command runs in jobs/. (The kernel may merge equal ones.)"""
    w = subprocess.Popen(["inotifywait", "-m", "--format", "%e %f", m.jobs], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in w.stderr:
        if "established" in line:
            break
    ok(command, cwd=m.jobs)
    time.sleep(0.1 * SLOW)
    w.terminate()
    lines = w.communicate(timeout=5 * SLOW)[0].splitlines()
    events = [f"{e.split(',')[0]} {f}" for e, _, f in (x.partition(" ") for x in lines)]
    return ", ".join(e for e, _ in itertools.groupby(events))


def test_inotify__what_users_do__exactly_their_own_events():
    """The README's list: nothing comes from the daemon, not even for the results that rm took."""
    need("inotifywait")
    with Mount() as m:
        for command, want in EVENTS:
            equal(events_of(m, command), want, command)
        ran(m, 3)


def test_inspectors__lsof_du_df_stat_getfattr__true_figures():
    """Sizes and numbers of files are those of the mount."""
    need("lsof", "getfattr")
    with Mount("max_files=100") as m:
        m.put("a.txt", "a" * 999)
        m.out("a")
        m.put("b.bin", "b" * 5000)
        with open(m.job("b.bin"), "rb") as f:
            equal(ok(["lsof", "-t", m.job("b.bin")]).split(), [str(os.getpid())], "lsof")
            equal(ok(["lsof", "-Ff", "-p", str(os.getpid()), "-a", m.path]).split()[1:],
                  [f"f{f.fileno()}"], "lsof of the mount")
        sizes = sum(os.stat(m.job(n)).st_size for n in m.list())
        equal(ok(["du", "-b", m.job("a.out")]).split()[0], "1000", "du -b")
        equal(int(ok(f"cd {m.jobs} && du -bc * | tail -1").split()[0]), sizes, "du -bc")
        equal(int(ok(["du", "--inodes", "-s", m.jobs]).split()[0]), 5, "du --inodes")
        equal(ok(f"df -i {m.jobs} | tail -1").split()[1:5], ["100", "2", "98", "2%"], "df -i")
        equal(ok(["stat", "-f", "-c", "%c %d %T", m.jobs]).split()[:2], ["100", "98"], "stat -f")
        equal(ok(["stat", "-c", "%s %h %F", m.job("a.out")]), "1000 1 regular file\n", "stat")
        for name in m.list():
            r = run(["getfattr", "-d", m.job(name)])
            assert r.stdout == "" and (r.stderr == "" or "not supported" in r.stderr), r
