"""The parts of the measurement: one function each, listed in PARTS at the end."""

import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import time

import ground
import harness
from ground import row

PROMPT = "Once upon a time"
TOKENS = 256
LONG_PROMPT = json.dumps({"prompt": "s" * 300})


# --- the file operations of a job against the floor ----------------------------------------------


def against(o, ours, other, what, aim):
    """Interleave jobseq in two folders, and print the ratio of the first to the other."""
    a, b = ground.rounds_of(o.rounds, lambda: ground.jobseq(ours, o.jobs),
                            lambda: ground.jobseq(other, o.jobs))
    median, best = ground.ratio(a, b)
    row(f"a job's operations / {what}", f"{median:.2f}", aim,
        f"median; of minima {best:.2f} ({min(a):.0f} us / {min(b):.0f} us)")


def floor(o):
    """One job's file operations against the kernel's floor, without and with waiting readers."""
    with ground.Floor() as kernel, ground.null() as disk, ground.on_tmpfs() as mount:
        def compare(what, ours=mount):
            against(o, ours.jobs, kernel.path, f"floor, {what}", "<= 1.15")

        compare("store on a disk", disk)
        compare("store on a tmpfs")
        with ground.Readers(mount, o.count, "read") as readers:
            compare(f"{o.count} results open")
            readers.start()
            compare(f"{o.count} reads parked")
        with ground.Readers(mount, o.count, "poll") as readers:
            readers.start()
            compare(f"{o.count} results polled")


# --- a spool of a million jobs -------------------------------------------------------------------


def timed(action):
    """Microseconds of action()."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e6


def entry_listed(mount):
    """Microseconds an entry of a whole listing, as ls -f reads it, after a change."""
    count = 0
    mount.put("changes")
    os.unlink(mount.job("changes"))

    def listed():
        nonlocal count
        with os.scandir(mount.jobs) as entries:
            count = sum(1 for _ in entries)
    return timed(listed) / max(count, 1)


def steps(mount, count):
    """Microseconds of stat (a name that was not asked for yet), create and finish, a job each."""
    took = {"stat": 0.0, "create": 0.0, "finish": 0.0}

    def end(stem):
        mount.put(stem + ".txt", "hello\n")
        mount.out(stem)

    for i in range(count):
        name = mount.job(f"old{random.randrange(mount.count)}.txt")
        took["stat"] += timed(lambda n=name: os.stat(n))
        took["create"] += timed(lambda i=i: os.close(os.open(
            mount.job(f"c{i}.txt"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
        took["finish"] += timed(lambda i=i: end(f"f{i}"))
    for i in range(count):
        os.unlink(mount.job(f"c{i}.txt"))
        os.unlink(mount.job(f"f{i}.txt"))
    return {what: us / count for what, us in took.items()}


def spool(o):
    """Start, memory and single operations with a million finished jobs against a thousand."""
    with ground.Filled(o.few) as few, ground.Filled(o.many) as many:
        row(f"seconds to start with {o.many} jobs", f"{many.start_seconds:.1f}", "< 10")
        row(f"bytes an idle job, of {o.many}",
            f"{(ground.resident(many, 'Rss') - ground.resident(few, 'Rss')) / o.many:.0f}", "< 512")
        large, small = ground.rounds_of(o.rounds, lambda: steps(many, o.jobs),
                                        lambda: steps(few, o.jobs))
        for what in ("stat", "create", "finish"):
            compared(o, what, [x[what] for x in large], [x[what] for x in small])
        against(o, many.jobs, few.jobs, f"spool, {o.many} jobs / {o.few}", "<= 1.20")
        entry_listed(few)
        compared(o, "listing, an entry", *ground.rounds_of(
            o.rounds, lambda: entry_listed(many),
            lambda: statistics.mean(entry_listed(few) for _ in range(20))))


def compared(o, what, large, small):
    """The row of one operation."""
    median, best = ground.ratio(large, small)
    row(f"{what}, {o.many} jobs / {o.few}", f"{median:.2f}", "<= 1.20",
        f"median; of minima {best:.2f} ({min(large):.1f} us / {min(small):.1f} us)")


def cycles(o):
    """Memory over many jobs that come, run and go."""
    with ground.on_tmpfs() as mount:
        def some():
            ground.run_jobs(mount.jobs, 1, o.cycles // 10)

        def many():
            for _ in range(9):
                some()

        some()  # what is kept for good is there
        ground.forget(mount)
        before = ground.resident(mount)
        growth = grown(mount, many)
        ground.forget(mount)
        left = ground.resident(mount) - before
        refilled = grown(mount, many)
    row(f"bytes grown a job removed, of {o.cycles * 9 // 10}", f"{growth / (o.cycles * 0.9):.0f}",
        "0", f"the kernel's names included; when it let go of them {left / (o.cycles * 0.9):.0f}, "
        f"another lot {refilled / (o.cycles * 0.9):.0f} more")


# --- jobs a second -------------------------------------------------------------------------------


def jobs(o):
    """Jobs a second from the request's create to the result's last byte."""
    ways = {"1 writer": (1, "each"), "8 writers": (8, "each"),
            "1 writer, all requests before all results": (1, "all")}
    for options in ((), ("durable",), ("inotify",)):
        with ground.null(*options) as mount:
            def measure(writers, order):
                return writers * o.jobs / ground.run_jobs(mount.jobs, writers, o.jobs, order)

            rates = ground.rounds_of(o.rounds,
                                     *(lambda w=way: measure(*w) for way in ways.values()))
        for what, rate in zip(ways, rates):
            row(f"jobs a second, {what}" + "".join(f", -o {x}" for x in options),
                f"{statistics.median(rate):.0f}", "", f"median; best {max(rate):.0f}")


# --- tokens a second -----------------------------------------------------------------------------


def story(mount, number):
    """Run one job of TOKENS tokens: (tokens, seconds on the device)."""
    stem = f"story{number}"
    mount.put(stem + ".json", json.dumps({"prompt": PROMPT, "max_new_tokens": TOKENS,
                                          "temperature": 0}))
    mount.out(stem)
    status = mount.status(stem)
    os.unlink(mount.job(stem + ".json"))
    return int(status["output_tokens"]), float(status["run_seconds"])


def stories_rate(mount, repeats):
    """Tokens a second of so many jobs, one after the other."""
    done = [story(mount, i) for i in range(repeats)]
    return sum(tokens for tokens, _ in done) / sum(seconds for _, seconds in done)


def llama2c_rate(program, threads, repeats):
    """What llama2.c itself calls its tokens a second, over so many runs of the same length."""
    command = [program, ground.STORIES + "/stories260K.bin", "-z", ground.STORIES + "/tok512.bin",
               "-t", "0", "-n", str(TOKENS), "-i", PROMPT]
    rates = []
    for _ in range(repeats):
        r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, timeout=20, check=True,
                           env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        rates.append(float(re.search(r"achieved tok/s: (\S+)", r.stderr)[1]))
    return repeats / sum(1 / rate for rate in rates)


def tokens_with(o, threads, program):
    """The rows of one number of threads."""
    with ground.Stories(f"threads={threads}") as mount:
        story(mount, 0)
        measures = [lambda: stories_rate(mount, o.repeats)]
        if program:
            measures.append(lambda: llama2c_rate(program, threads, o.repeats))
        rates = ground.rounds_of(o.rounds, *measures)
    row(f"tokens a second, stories260K, {threads} thread(s)", f"{statistics.median(rates[0]):.0f}",
        "", f"median; best {max(rates[0]):.0f}")
    if program:
        median, _ = ground.ratio(*rates)
        row(f"  that / llama2.c, {threads} thread(s)", f"{median:.2f}", "> 1",
            f"median; of maxima {max(rates[0]) / max(rates[1]):.2f} "
            f"(llama2.c {statistics.median(rates[1]):.0f})")


def tokens(o):
    """Tokens a second of the software device."""
    program = os.environ.get("LLAMA2C")
    if not program:
        ground.remark("no ratio to llama2.c: LLAMA2C does not name its program")
    for threads in sorted({1, ground.CORES}):
        tokens_with(o, threads, program)


# --- memory --------------------------------------------------------------------------------------


def grown(mount, action):
    """By how many bytes action() makes the daemon larger."""
    before = ground.resident(mount)
    action()
    return ground.resident(mount) - before


def per_job(o, mount):
    """Memory of a finished job that the kernel has forgotten.

    What its forgetting frees stays with the allocator; a second lot of jobs uses it again, and what
    that lot grows by is the jobs alone.
    """
    def finished():
        ground.run_jobs(mount.jobs, 1, o.count, "each", "keep")

    first = grown(mount, finished)
    ground.forget(mount)
    second = grown(mount, finished)
    row(f"bytes an idle finished job, of {o.count}", f"{second / o.count:.0f}", "< 512",
        f"a second lot; the first one with the kernel's inodes: {first / o.count:.0f}")


def per_reader(o, mount, kind, what):
    """Memory of an opened result of a job that never ran, and of the wait for it."""
    with ground.Readers(mount, 1, kind) as readers:
        readers.start()
    readers = ground.Readers(mount, o.count, kind)
    with contextlib.ExitStack() as stack:
        opened = grown(mount, lambda: stack.enter_context(readers))
        waits = grown(mount, readers.start)
    row(f"bytes a {what}, of {o.count}", f"{waits / o.count:.0f}", "",
        f"and {opened / o.count:.0f} the request and its opened result")


def memory(o):
    """Resident memory of the daemon."""
    with ground.null() as mount:
        ground.run_jobs(mount.jobs, 1, 100)
        row("resident kilobytes, idle, device=null",
            f"{ground.resident(mount, 'Rss') / 1024:.0f}", "",
            f"allocated {ground.resident(mount) / 1024:.0f}")
        per_job(o, mount)
    for kind, what in (("read", "parked read"), ("poll", "polled result")):
        with ground.null() as mount:  # a fresh one each: else freed memory is used again
            per_reader(o, mount, kind, what)
    stories_memory()


def stories_memory():
    """Resident memory with a model on the software device."""
    try:
        with ground.Stories() as mount:
            story(mount, 0)
            row("resident kilobytes, idle, stories260K",
                f"{ground.resident(mount, 'Rss') / 1024:.0f}", "",
                f"allocated {ground.resident(mount) / 1024:.0f}")
    except harness.Skip as e:
        ground.remark(f"no memory with a model: {e}")


# --- latency of health ---------------------------------------------------------------------------


def look(path, times):
    """Microseconds of open, read and close, so many times with a millisecond between."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        fd = os.open(path, os.O_RDONLY)
        assert os.read(fd, 4096)
        os.close(fd)
        took.append((time.perf_counter() - start) * 1e6)
        time.sleep(0.001)
    return took


@contextlib.contextmanager
def device_busy(mount, request, count):
    """With so many of these requests queued and running; they must last as long as the block."""
    names = [mount.job(f"busy{i}.json") for i in range(count)]
    for name in names:
        harness.write(name, request)
    harness.until(lambda: mount.metric("npufs_jobs_running") > 0, 10, "a job runs")
    yield
    assert mount.metric("npufs_jobs_running") > 0, "the jobs ended before the measurement did"
    for name in names:
        os.unlink(name)
    harness.until(lambda: mount.metric("npufs_jobs_running") + mount.metric("npufs_jobs_queued")
                  == 0, 20, "the device is idle")


def health_on(o, mount, request, count, what):
    """Idle and busy in turn on one mount, and the rows."""
    path = mount.path + "/health"

    def busy():
        with device_busy(mount, request, count):
            return look(path, o.looks)

    idle, loaded = ground.rounds_of(o.rounds, lambda: look(path, o.looks), busy)
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        a, b = ([ground.percentile(r, share) for r in rounds] for rounds in (loaded, idle))
        row(f"health, {name}, {what} / idle", f"{ground.ratio(a, b)[0]:.2f}", "",
            f"median of rounds ({statistics.median(a):.0f} us / {statistics.median(b):.0f} us)")


def health(o):
    """Latency of `cat health` while the device is busy."""
    with ground.null("sim_delay=100ms") as mount:
        health_on(o, mount, LONG_PROMPT, 20, "device waits")
    request = json.dumps({"prompt": PROMPT, "max_new_tokens": TOKENS, "temperature": 0})
    for threads in sorted({1, ground.CORES}):
        with ground.Stories(f"threads={threads}") as mount:
            health_on(o, mount, request, o.busy, f"device computes on {threads}")


# --- resident callables --------------------------------------------------------------------------


def callable_figures():
    """The figures that tool_callables measures, by name."""
    text = harness.ok([harness.tool("callables")], ground.STEP_LIMIT, cwd=harness.TOP)
    return {name: float(value) for name, value in map(str.split, text.splitlines())}


def of_figures(rounds, a, b, what, aim=""):
    """The row of the ratio of two figures of nanoseconds."""
    ours, other = [r[a] for r in rounds], [r[b] for r in rounds]
    median, best = ground.ratio(ours, other)
    row(what, f"{median:.2f}", aim,
        f"median; of minima {best:.2f} ({min(ours):.0f} ns / {min(other):.0f} ns)")


def callable_launches(rounds):
    """The rows of launches and replays."""
    of_figures(rounds, "add_ns", "direct_ns", "callable, add of 64 elements / a call of C")
    rate = [1e9 / r["add_ns"] for r in rounds]
    row("  launches a second", f"{statistics.median(rate):.0f}", "", f"median; best {max(rate):.0f}")
    path = [r["least_ns"] - r["run_ns"] for r in rounds]
    row("ns a launch, without the program's own run", f"{statistics.median(path):.0f}", "< 1000",
        f"median; best {min(path):.0f}, of which {min(r['host_ns'] for r in rounds):.0f} before "
        "the device has it")
    row("allocations of all launches", f"{max(r['allocations'] for r in rounds):.0f}", "0")
    of_figures(rounds, "replay_ns", "least_ns", "a launch of a graph / a launch", "<= 1")


def callable_memory(figures):
    """The rows of memory, which is the same each time."""
    ids = figures["registrations"]
    row(f"host bytes a callable, of {ids:.0f}", f"{figures['host_bytes'] / ids:.0f}")
    row("bytes allocated / resident on the device",
        f"{figures['allocated_bytes'] / figures['resident_bytes']:.2f}", "",
        f"{figures['allocated_bytes']:.0f} / {figures['resident_bytes']:.0f}, images of "
        f"{figures['image_bytes']:.0f}")


def callables(o):
    """Launches, registrations and memory of resident callables."""
    rounds, = ground.rounds_of(o.rounds, callable_figures)
    callable_launches(rounds)
    for images, what in (("small", "small images"), ("many", "8 fill a block, no copy")):
        for stretch in ("middle", "last"):
            of_figures(rounds, f"{images}_{stretch}_ns", f"{images}_first_ns",
                       f"registration, {stretch} / first 1024, {what}", "1")
    callable_memory(rounds[0])


# --- the list ------------------------------------------------------------------------------------

# Name: function, seconds it may take.
PARTS = {
    "floor": (floor, 160),
    "spool": (spool, 300),
    "cycles": (cycles, 120),
    "jobs": (jobs, 120),
    "tokens": (tokens, 60),
    "memory": (memory, 90),
    "health": (health, 90),
    "callables": (callables, 60),
}
