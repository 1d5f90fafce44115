"""The accelerator's SDK through the mount: its adapter, over a double of the SDK."""

import json
import os

from harness import BUILD, Mount, Skip, equal, read, run, until
from test_models import XOR, Models

ADAPTER = os.path.join(BUILD, "tests", "npufs-calrt.so")
ASK = {"prompt": "3rd of March, 2024", "output": "json"}


def use(path=ADAPTER, arm=None):
    """What the daemons of this test load, and which call of the double fails how."""
    if not os.path.exists(ADAPTER):
        raise Skip("the adapter is not built")
    os.environ["NPUFS_CALRT_SO"] = path
    if arm:
        os.environ["CALRT_DOUBLE_ARM"] = arm


def answers(*options):
    """What a daemon answers to a text, to a batch and to tensors."""
    with Models(*options, models=("dates", "xor")) as m:
        text = m.ask("a", {"model": "dates", **ASK})
        m.put("b.jsonl", 3 * (json.dumps({"model": "dates", "prompt": ASK["prompt"]}) + "\n"))
        m.put("c.json", XOR)
        batch = [json.loads(line)["response"]["tokens"] for line in m.out("b").splitlines()]
        return text["text"], text["tokens"], batch, json.loads(m.out("c"))["outputs"]


def test_calrt__jobs__what_the_software_device_answers():
    use()
    want, got = answers("device=sim"), answers("device=calrt")
    assert len(want[1]) > 3 and len(want[2]) == 3, want
    equal(got, want)


def test_calrt__many_at_once_and_a_stop__all_right():
    use()
    with Models("device=calrt", "max_active=8") as m:
        assert "calrt" in read(m.path + "/version"), read(m.path + "/version")
        for i in range(20):
            m.put(f"a{i}.json", json.dumps({"prompt": ASK["prompt"]}))
        equal([m.out(f"a{i}") for i in range(20)], ["2024-03-03\n"] * 20)


def refused(path):
    """What the command says, which must fail."""
    use(path)
    m = Mount("device=calrt", wait=False)
    try:
        r = run(m.command())
        equal(r.returncode, 1)
        return r.stderr
    finally:
        m.clear()


def test_calrt__not_there_or_not_to_be_trusted__refused_with_what_to_do():
    said = refused("/nowhere/npufs-calrt.so")
    assert "calrt cannot be used: npufs-calrt.so is not installed" in said, said
    assert "make CALRT_SDK=DIR install" in said, said
    with open("/tmp/npufs-open.so", "wb") as f:  # in a folder where everybody may write
        f.write(b"x")
    try:
        said = refused(f.name)
    finally:
        os.unlink(f.name)
    assert "others may write" in said, said


def test_calrt__infer_throws__told_by_health_and_nothing_of_the_exception():
    use(arm="infer=-1")
    with Models("device=calrt") as m:
        until(lambda: "Unknown" in read(m.path + "/health"), what="health tells")
        told = read(m.path + "/health") + read(m.log)
        for secret in ("secret", "0xdeadbeef", "runtime_error"):
            assert secret not in told, told


def test_calrt__matrix__every_case_passes_over_the_double():
    use()
    with Models(models=("dates", "xor")) as m:
        m.stop()
        r = run([BUILD + "/npufs-admin", "matrix", m.store, "-o", "device=calrt"])
        bad = [line for line in r.stdout.splitlines() if line.startswith("not ok")]
        equal((r.returncode, bad), (0, []))
        equal(r.stdout.count("# evidence recorded"), 2)
        m.start()
