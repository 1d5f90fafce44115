"""Real models through the mount: the shipped one, one that nobody here made, and damaged ones."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time

import harness
from harness import BUILD, TOP, Mount, Skip, equal, read, run, until, write

STORIES = os.path.join(TOP, "..", "shared", "data", "stories260K")
DATES = os.path.join(TOP, "examples", "dates")
HELDOUT = 20000
XOR = json.dumps({"model": "xor", "inputs": [
    {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 0]}]})
ADMIN = os.path.join(BUILD, "npufs-admin")


def admin(*words):
    """Run npufs-admin, which must succeed."""
    return harness.ok([ADMIN, *words])


class Models(Mount):
    """A daemon on the software device, with a store made by npufs-admin."""

    def __init__(self, *options, models=("dates",), stories=False, damage=None, **kw):
        super().__init__("device=sim", *options, **kw)
        self.key = os.path.join(self.dir, "key")
        shutil.rmtree(self.store)
        admin("store", "init", self.store)
        admin("key", "generate", self.key)
        admin("store", "trust", self.store, self.key + ".pub.pem")
        for name in models:
            admin("artifact", "import", "package", os.path.join(TOP, "examples", name),
                  self.artifact(name))
            self.sign(name)
        if stories:
            self.import_stories()
        if damage:
            damage(self)

    def serving(self):
        """Is it mounted, ready or not?"""
        return os.path.exists(self.path + "/health")

    def artifact(self, name):
        """The folder of an artifact."""
        return os.path.join(self.store, "models", name)

    def sign(self, name):
        """Sign it again."""
        admin("artifact", "sign", self.artifact(name), self.key + ".pem")

    def import_stories(self):
        """The public model that the tests find beside the project."""
        if not os.path.exists(STORIES):
            raise Skip("../shared/data/stories260K is not here")
        admin("artifact", "import", "llama2c", STORIES + "/stories260K.bin",
              STORIES + "/tok512.bin", self.artifact("stories"))
        self.sign("stories")

    def calls(self, name):
        """How often the device was called so."""
        label = f'npufs_device_calls_total{{call="{name}"}} '
        lines = [x for x in read(self.path + "/metrics").splitlines() if x.startswith(label)]
        return int(lines[0].rsplit(" ", 1)[1])

    def edit(self, name, change):
        """Change the manifest and sign it again."""
        path = os.path.join(self.artifact(name), "manifest.json")
        manifest = json.loads(read(path))
        change(manifest)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(manifest, f)
        self.sign(name)

    def ask(self, stem, request):
        """Write a request and read its JSON answer."""
        self.put(stem + ".json", json.dumps(request))
        return json.loads(self.out(stem))


# --- the public model -----------------------------------------------------------------------------


def greedy(m):
    """Every recorded line comes out exactly."""
    lines = [json.loads(x) for x in read(STORIES + "/greedy.jsonl").splitlines()]
    assert lines
    for i, want in enumerate(lines):
        prompt_ids = m.ask(f"n{i}", {"prompt": want["prompt"], "max_new_tokens": 1,
                                     "output": "json"})["usage"]["prompt_tokens"] - 1
        got = m.ask(f"g{i}", {"prompt": want["prompt"], "temperature": 0, "echo": True,
                              "max_new_tokens": want["positions"] - prompt_ids,
                              "output": "json"})
        equal(got["text"], want["text"], f"text of line {i}")
        equal(got["tokens"], want["token_ids"][prompt_ids:], f"ids of line {i}")


def test_models__stories260K_greedy__text_and_ids_exact():
    with Models(models=(), stories=True) as m:
        greedy(m)


def test_models__stories260K_two_threads__the_same():
    with Models("threads=2", models=(), stories=True) as m:
        greedy(m)


def test_models__many_at_once__each_as_if_alone():
    prompts = ["Once upon a time", "The little dog", "One day", "Lily saw", "Tom had", "A big"]
    with Models("max_active=4", models=(), stories=True) as m:
        alone = [m.ask(f"a{i}", {"prompt": p, "max_new_tokens": 120, "output": "json"})["text"]
                 for i, p in enumerate(prompts)]
        for i, p in enumerate(prompts):
            m.put(f"b{i}.json", json.dumps({"prompt": p, "max_new_tokens": 120}))
        equal([m.out(f"b{i}")[:-1] for i in range(len(prompts))], alone)


def test_models__seed__repeats_and_is_reported():
    ask = {"prompt": "Once", "temperature": 1, "max_new_tokens": 60, "output": "json"}
    with Models(models=(), stories=True) as m:
        first = m.ask("a", ask)
        again = m.ask("b", {**ask, "seed": first["seed"]})
        other = m.ask("c", {**ask, "seed": first["seed"] ^ 1})
        equal(again["text"], first["text"])
        assert other["text"] != first["text"]
        equal(m.status("b")["seed"], str(first["seed"]))


def test_models__stop_string__ends_before_it():
    with Models(models=(), stories=True) as m:
        got = m.ask("a", {"prompt": "Once upon a time", "stop": ["Lily"], "output": "json",
                          "max_new_tokens": 64})
        equal(got["text"], ", there was a little girl named ")
        equal(got["finish_reason"], "stop")


def test_models__stream__concatenates_to_the_output_and_is_utf8():
    with Models("sim_delay=2ms", models=(), stories=True) as m:
        m.put("a.json", json.dumps({"prompt": "Once", "max_new_tokens": 100, "stream": True}))
        pieces = []
        with open(m.job("a.stream"), "rb", buffering=0) as f:
            while piece := f.read(4096):
                pieces.append(piece.decode("utf-8"))
        assert len(pieces) > 10, len(pieces)
        equal("".join(pieces), m.out("a"))


def test_models__short_behind_long__ends_first():
    with Models("sim_delay=5ms", models=(), stories=True) as m:
        m.put("long.json", json.dumps({"prompt": "Once", "max_new_tokens": 400}))
        m.runs("long")
        m.put("short.json", json.dumps({"prompt": "Once", "max_new_tokens": 5}))
        m.out("short")
        equal(m.state("long"), "running")


def test_models__tokens_in__as_the_prompt():
    with Models(models=(), stories=True) as m:
        want = m.ask("a", {"prompt": "Once upon a time", "max_new_tokens": 20, "output": "json"})
        got = m.ask("b", {"tokens": [1, 403, 407, 261, 378], "max_new_tokens": 20,
                          "output": "json"})
        equal(got["tokens"], want["tokens"])


def test_models__context_limit__refused_with_both_numbers():
    with Models() as m:
        m.put("a.json", json.dumps({"prompt": "1" * 70}))
        equal(m.done("a")["error"], "7 E2BIG")
        assert "72" in m.err("a")["reason"] and "64" in m.err("a")["reason"], m.err("a")
        m.put("b.json", json.dumps({"prompt": "1" * 30, "max_new_tokens": 40}))
        m.done("b")
        assert "32" in m.err("b")["reason"] and "64" in m.err("b")["reason"], m.err("b")
        m.put("c.json", json.dumps({"tokens": [256, 259, 257]}))
        m.done("c")
        assert "259" in m.err("c")["reason"], m.err("c")


# --- the shipped models ---------------------------------------------------------------------------


def test_models__dates_held_out__at_least_995_in_1000():
    count = HELDOUT // 10 if harness.SANITIZED else HELDOUT  # a sanitizer looks for other faults
    listed = harness.ok([sys.executable, DATES + "/dates.py", "heldout", str(count), "1"], 120)
    pairs = [line.split("\t") for line in listed.splitlines()]
    equal(len(pairs), count)
    wrong = []
    with Models("max_active=16") as m:
        for start in range(0, count, 500):
            part = pairs[start:start + 500]
            for i, (text, _) in enumerate(part):
                m.put(f"h{i}.txt", text + "\n")
            for i, (text, want) in enumerate(part):
                got = m.out(f"h{i}").rstrip("\n")
                wrong += [(text, want, got)] if got != want else []
    print(f"{count - len(wrong)} of {count} exact; wrong, for example: {wrong[:5]}")
    assert len(wrong) <= count * 0.005, wrong[:20]


test_models__dates_held_out__at_least_995_in_1000.limit = 240
test_models__dates_held_out__at_least_995_in_1000.plain = True


def gnu_date(text):
    """What date(1) makes of it; `invalid` where it refuses."""
    r = run(["date", "-u", "-d", text, "+%Y-%m-%d"])
    return r.stdout.strip() if r.returncode == 0 else "invalid"


def test_models__dates_unambiguous__as_gnu_date():
    harness.need("date")
    listed = harness.ok([sys.executable, DATES + "/dates.py", "unambiguous"]).splitlines()
    assert len(listed) >= 300, len(listed)
    with Models() as m:
        for i, text in enumerate(listed):
            m.put(f"d{i}.txt", text + "\n")
        got = [(t, m.out(f"d{i}").strip()) for i, t in enumerate(listed)]
    equal(got, [(t, gnu_date(t)) for t in listed])


def test_models__xor__truth_table():
    with Models(models=("xor",)) as m:
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            got = m.ask(f"x{a}{b}", {"inputs": [{"name": "x", "shape": [1, 2],
                                                 "datatype": "FP32", "data": [a, b]}]})
            equal(got["outputs"][0]["data"], [a ^ b])


def test_models__wrong_tensor__both_shapes_told():
    with Models(models=("xor",)) as m:
        m.put("a.json", json.dumps({"inputs": [{"name": "x", "shape": [1, 3],
                                                "datatype": "FP32", "data": [1, 2, 3]}]}))
        m.done("a")
        reason = read(m.job("a.err"))
        assert "[1,3]" in reason and "[1,2]" in reason, reason


def test_models__numbers_overflow__failed_and_never_in_an_output():
    """Infinity and NaN of a computation are no result (K14-11)."""
    with Models(models=("xor",)) as m:
        request = json.loads(XOR)
        for stem, data in (("inf", [3e38, 3e38]), ("fine", [0, 1])):
            request["inputs"][0]["data"] = data
            m.put(stem + ".json", json.dumps(request))
        equal(m.done("inf")["error"], "5 EIO")
        equal(harness.errno_of(m.out, "inf"), errno.EIO)
        equal(json.loads(m.out("fine"))["outputs"][0]["data"], [1])


def test_models__numbers_overflow__only_their_own_jobs_fail():
    """What one user sends takes the device from nobody."""
    with Models("sim_delay=20ms", models=("xor",)) as m:
        request = json.loads(XOR)
        for i in range(10):
            for stem, data in (("bad", [3e38, 3e38]), ("good", [0, 1])):
                request["inputs"][0]["data"] = data
                m.put(f"{stem}{i}.json", json.dumps(request))
        for i in range(10):
            equal(m.done(f"bad{i}")["error"], "5 EIO")
            equal(json.loads(m.out(f"good{i}"))["outputs"][0]["data"], [1])
        assert os.path.exists(m.path + "/ready")
        assert "generation: 1" in read(m.path + "/health"), read(m.path + "/health")


def test_models__slow_load__health_answers_and_requests_wait():
    """Alive is not ready; a load holds up nothing but its own jobs (K16-07)."""
    with Models("sim_delay=300ms", models=("dates", "xor"), wait=False) as m:
        until(m.serving, 10, "the mount")
        m.put("early.json", XOR)
        words, seconds = [], []

        def poll():
            ready = os.path.exists(m.path + "/ready")  # before health: ready may come between the two
            start = time.monotonic()
            words.append(read(m.path + "/health").split("\n")[0])
            seconds.append(time.monotonic() - start)
            return ready

        assert not poll(), "not ready at once"
        until(poll, 20, "ready")
        equal((words[0], words[-1], len(set(words))), ("starting", "ready", 2))
        assert sorted(seconds)[len(seconds) // 2] < 0.1 * harness.SLOW, seconds
        equal(json.loads(m.out("early"))["outputs"][0]["data"], [1])


def test_models__two_models__swapped_and_none_lost():
    with Models(models=("dates", "xor")) as m:
        for i in range(40):
            m.put(f"d{i}.txt", "3 Mar 2024\n")
            shutil.copy(m.path + "/models/xor/example.json", m.job(f"x{i}.json"))
        for i in range(40):
            equal(m.out(f"d{i}"), "2024-03-03\n")
            equal(json.loads(m.out(f"x{i}"))["outputs"][0]["data"], [1])
        assert read(m.path + "/models/dates/state") in ("ready\n", "available\n")


def test_models__example__names_its_model():
    with Models(models=("dates", "xor")) as m:
        for name in ("dates", "xor"):
            equal(json.loads(read(f"{m.path}/models/{name}/example.json"))["model"], name)


def test_models__unknown_model__nearest_named():
    with Models() as m:
        assert m.send("a.json", '{"model": "datse", "prompt": "x"}')
        assert '"dates"' in m.err("a")["reason"], m.err("a")


# --- damage ---------------------------------------------------------------------------------------


def damaged_file(m, name="calbin/weights.safetensors"):
    """Path of a file of the artifact."""
    return os.path.join(m.artifact("dates"), name)


def flip(m):
    """Change one byte."""
    with open(damaged_file(m), "r+b") as f:
        f.seek(5000)
        byte = f.read(1)
        f.seek(5000)
        f.write(bytes([byte[0] ^ 1]))


def foreign_key(m):
    """Sign with a key that the store does not trust."""
    admin("key", "generate", m.key + "2")
    admin("artifact", "sign", m.artifact("dates"), m.key + "2.pem")


def set_program(manifest, **members):
    """Change members of the first program."""
    manifest["programs"][0].update(members)


def golden(m):
    """Another golden output, signed."""
    path = damaged_file(m, "golden/prefill.out")
    data = bytearray(open(path, "rb").read())
    data[:4] = b"\0\0\x80\x3f" if data[:4] != b"\0\0\x80\x3f" else b"\0\0\0\x40"
    write(path, bytes(data))
    digest = subprocess.check_output(["sha256sum", path], text=True).split()[0]

    def change(manifest):
        for f in manifest["files"]:
            if f["path"] == "golden/prefill.out":
                f["sha256"] = digest
    m.edit("dates", change)


def other_shape(manifest):
    """The logits have another size on the device."""
    for p in manifest["programs"][:1]:
        p["inputs"][0]["shape"] = [8]
    manifest["golden"] = []


def other_type(manifest):
    """Tokens of another type."""
    manifest["programs"][0]["inputs"][0]["dtype"] = "uint32"


BEFORE_THE_DEVICE = {
    "missing_file": lambda m: os.unlink(damaged_file(m)),
    "flipped_byte": flip,
    "truncated_file": lambda m: os.truncate(damaged_file(m), 1000),
    "wrong_signature": lambda m: write(damaged_file(m, "manifest.sig"), b"x" * 64),
    "unknown_key": foreign_key,
    "writable_trust": lambda m: os.chmod(os.path.join(m.store, "trust"), 0o775),
    "extra_file": lambda m: write(damaged_file(m, "calbin/more"), b"x"),
}
BY_THE_DEVICE = {
    "wrong_version": lambda m: m.edit("dates", lambda x: x.update(calbin_version="0.7.5")),
    "wrong_runtime": lambda m: m.edit(
        "dates", lambda x: x["compatible"].update(runtime=["0.9"])),
    "wrong_count": lambda m: m.edit("dates", lambda x: x["programs"].pop()),
    "wrong_name": lambda m: m.edit(
        "dates", lambda x: x["programs"][2].update(name="kv_updates")),
    "wrong_dtype": lambda m: m.edit("dates", other_type),
    "wrong_shape": lambda m: m.edit("dates", other_shape),
    "wrong_golden": golden,
}


def check_damaged(damage, device_calls):
    """Mounted, health says failed and why, jobs are refused; what reached the device."""
    with Models(damage=damage) as m:
        until(lambda: read(m.path + "/health").startswith("failed\n"), 10, "failed")
        health = read(m.path + "/health")
        assert "\nreason: " in health, health
        assert m.dir not in health and "weights" not in health, health
        assert "model dates: " in health, health
        assert not os.path.exists(m.path + "/ready")
        assert m.send("a.txt", "3 Mar 2024\n"), "the request was taken"
        equal(m.metric("npufs_jobs_started_total"), 0)
        calls = {c: m.calls(c) for c in ("CreateVDevice", "configure", "infer")}
        for call, most in device_calls.items():
            assert calls[call] <= most, calls
        assert read(m.path + "/models/dates/state").startswith("failed\n")


def test_models__damaged_artifact__never_reaches_the_device():
    for name, damage in BEFORE_THE_DEVICE.items():
        print(name)
        check_damaged(damage, {"CreateVDevice": 0, "configure": 0, "infer": 0})


def test_models__artifact_that_does_not_fit__never_configured():
    for name, damage in BY_THE_DEVICE.items():
        print(name)
        golden_runs = name == "wrong_golden"
        check_damaged(damage, {"CreateVDevice": 1, "configure": int(golden_runs),
                               "infer": 2 * golden_runs})


def test_models__one_damaged_of_two__degraded_and_the_other_serves():
    def damage(m):
        os.unlink(os.path.join(m.artifact("xor"), "golden/xor.in"))
    with Models(models=("dates", "xor"), damage=damage) as m:
        until(lambda: read(m.path + "/health").startswith("degraded\n"), 10, "degraded")
        m.put("a.txt", "3 Mar 2024\n")
        equal(m.out("a"), "2024-03-03\n")
        assert m.send("b.json", XOR)
        equal(m.done("b")["state"], "failed")


def test_models__changed_on_disk_while_mounted__not_loaded_and_the_other_serves():
    """What was verified at the start is verified again before each load."""
    with Models(models=("dates", "xor")) as m:
        m.put("a.txt", "3 Mar 2024\n")
        equal(m.out("a"), "2024-03-03\n")
        path = os.path.join(m.artifact("xor"), "calbin", "weights.safetensors")
        os.truncate(path, os.path.getsize(path) - 4)
        m.put("b.json", XOR)
        equal(m.done("b")["state"], "failed")
        assert "model xor" in read(m.job("b.err")), read(m.job("b.err"))
        m.put("c.txt", "4 Mar 2024\n")
        equal(m.out("c"), "2024-03-04\n")
        m.put("d.txt", "5 Mar 2024\n")
        os.truncate(os.path.join(m.artifact("dates"), "calbin", "weights.safetensors"), 0)
        equal(m.out("d"), "2024-03-05\n")
