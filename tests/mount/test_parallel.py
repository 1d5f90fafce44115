"""Two inferences in flight: only where the store's evidence proves them, and with the same answers."""

import json
import threading

import harness
from harness import Mount, equal, read, tool, until
from test_models import Models

SIM = ("npufs software device", "sim-1", "sim-1", "0.7.6")
NULL = ("npufs measuring device", "null-1", "null-1", "0.7.6")
PROVEN = "parallel=proven"
SLOW = "sim_delay=2ms"
PROMPTS = ("Once upon a time", "Lily", "The little dog was very happy and", "Tom")


def parallel(m):
    """What health says of it."""
    return harness._fields(read(m.path + "/health"))["parallel"]


def paired(m):
    """How often two were in flight together."""
    return m.metric("npufs_paired_steps_total")


def prove(m, alias, device):
    """Evidence for the model as it is on this device: name, driver, firmware, runtime."""
    sha256 = json.loads(read(f"{m.path}/manifests/{alias}.json"))["sha256"]
    harness.ok([tool("evidence"), m.store, alias, *device, sha256])


def again(m):
    """Stop the daemon and start it on the same store."""
    m.stop()
    m.start()
    until(lambda: read(m.path + "/health").startswith("ready"), 10, "ready")


def request(i, tokens=60):
    """A long text, sampled with a seed of its own."""
    return json.dumps({"prompt": PROMPTS[i % len(PROMPTS)], "max_new_tokens": tokens,
                       "temperature": 0.8, "seed": i})


def one_after_the_other(m, tag, n):
    """The texts of n requests."""
    texts = []
    for i in range(n):
        m.put(f"{tag}{i}.json", request(i))
        texts.append(m.out(f"{tag}{i}"))
    return texts


def streams_together(m, tag, n):
    """The same, all at once, each read from its stream as it comes."""
    texts = [None] * n

    def follow(i):
        texts[i] = read(m.job(f"{tag}{i}.stream"))

    for i in range(n):
        m.put(f"{tag}{i}.json", request(i))
    threads = [threading.Thread(target=follow, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return texts


def test_parallel__proven__streams_as_one_after_the_other():
    with Models(PROVEN, SLOW, models=(), stories=True) as m:
        equal(parallel(m), "one in flight, no evidence", "health")
        want = one_after_the_other(m, "a", 4)
        equal(len(set(want)), 4, "different texts")
        equal(streams_together(m, "b", 4), want, "together, one in flight")
        equal(paired(m), 0, "pairs without evidence")
        prove(m, "stories", SIM)
        again(m)
        equal(parallel(m), "two in flight", "health")
        equal(streams_together(m, "c", 2), want[:2], "two streams")
        assert paired(m) > 50, paired(m)
        equal(streams_together(m, "d", 4), want, "four streams")
        equal(one_after_the_other(m, "e", 1), want[:1], "one alone")


def test_parallel__stale_evidence__named_and_one_in_flight():
    with Models(PROVEN, SLOW, models=(), stories=True) as m:
        want = one_after_the_other(m, "a", 2)
        prove(m, "stories", (SIM[0], SIM[1], "sim-0", SIM[3]))
        again(m)
        equal(parallel(m), "one in flight, evidence is stale: firmware", "health")
        equal(streams_together(m, "b", 2), want, "texts")
        equal(paired(m), 0, "pairs")


def test_parallel__not_asked_for__off_whatever_is_proven():
    with Mount(SLOW) as m:
        equal(parallel(m), "off", "health")
        prove(m, "echo", NULL)
        again(m)
        equal(parallel(m), "off", "health")
        for i in range(3):
            m.put(f"j{i}.txt", f"words {i}")
        for i in range(3):
            equal(m.out(f"j{i}"), f"words {i}\n", "text")
        equal(paired(m), 0, "pairs")


def test_parallel__evidence_anyone_could_write__one_in_flight():
    with Mount(PROVEN, SLOW) as m:
        prove(m, "echo", NULL)
        harness.ok(["chmod", "666", m.store + "/evidence/echo.json"])
        again(m)
        equal(parallel(m), "one in flight, the evidence cannot be used: EPERM", "health")
        harness.ok(["chmod", "600", m.store + "/evidence/echo.json"])
        again(m)
        equal(parallel(m), "two in flight", "health")


def test_parallel__batch_and_prompts_together__each_its_own_answers():
    with Mount(PROVEN, SLOW) as m:
        prove(m, "echo", NULL)
        again(m)
        m.put("b.jsonl", "".join(json.dumps({"custom_id": str(i), "prompt": f"line {i} of many"})
                                 + "\n" for i in range(20)))
        for i in range(6):
            m.put(f"p{i}.txt", f"prompt number {i}, which is longer")
        for i in range(6):
            equal(m.out(f"p{i}"), f"prompt number {i}, which is longer\n", "text")
        texts = [json.loads(x) for x in m.out("b").splitlines()]
        equal([(x["custom_id"], x["response"]["text"]) for x in texts],
              [(str(i), f"line {i} of many") for i in range(20)], "answers")
        assert paired(m) > 50, paired(m)


def test_parallel__two_in_flight__their_time_is_counted():
    with Mount(PROVEN, "sim_delay=5ms") as m:
        prove(m, "echo", NULL)
        again(m)
        for i in range(2):
            m.put(f"p{i}.txt", "a prompt that is as long as the other")
        for i in range(2):
            m.out(f"p{i}")
        assert paired(m) > 20, paired(m)
        busy = m.metric("npufs_device_busy_seconds_total")
        assert busy >= 0.005 * paired(m), (busy, paired(m))
