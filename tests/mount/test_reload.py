"""Models that change while mounted, and what the runtime may write when asked to."""

import json
import os
import shutil
import stat
import time

from harness import TOP, equal, read, run, until
from test_models import XOR, Models, admin


def install(m, name, change=None, damage=None):
    """As an operator does: made beside, changed, signed, then two renames."""
    beside = m.artifact("next")
    admin("artifact", "import", "package", os.path.join(TOP, "examples", name), beside)
    if change:
        m.edit("next", change)
    else:
        m.sign("next")
    if damage:
        damage(beside)
    os.rename(m.artifact(name), m.dir + "/before")
    os.rename(beside, m.artifact(name))


def health_says(m, word, part=""):
    """The state and something of the rest."""
    text = read(m.path + "/health")
    return text.startswith(word + "\n") and part in text


def describe(text):
    """A change of the manifest that leaves the model as it is."""
    def change(manifest):
        manifest["description"] = text
    return change


def test_reload__new_version__taken_within_seconds_and_no_job_fails():
    with Models() as m:
        m.put("a.txt", "3 Mar 2024\n")
        equal(m.out("a"), "2024-03-03\n")
        install(m, "dates", describe("another one"))
        for i in range(40):
            m.put(f"b{i}.txt", "4 Mar 2024\n")
        until(lambda: read(m.path + "/models/dates/description") == "another one\n", 20, "new text")
        until(lambda: read(m.path + "/models/dates/generation") == "2\n", 20, "generation 2")
        for i in range(40):
            equal(m.out(f"b{i}"), "2024-03-04\n")
        m.put("c.txt", "5 Mar 2024\n")
        equal(m.done("c")["generation"], "2")
        assert health_says(m, "ready", "recoveries: 0\n"), read(m.path + "/health")


def test_reload__bad_versions__old_one_serves_and_health_says_why():
    def truncate(folder):
        os.truncate(folder + "/calbin/weights.safetensors", 100)

    def other_context(manifest):
        manifest["context_limit"] += 1

    for change, damage in ((None, truncate), (other_context, None)):
        with Models() as m:
            install(m, "dates", change, damage)
            until(lambda: health_says(m, "degraded", "dates"), 20, "degraded")
            m.put("a.txt", "3 Mar 2024\n")
            equal(m.out("a"), "2024-03-03\n")
            shutil.rmtree(m.artifact("dates"))
            os.rename(m.dir + "/before", m.artifact("dates"))
            until(lambda: health_says(m, "ready"), 20, "ready with the old one back")
            m.put("b.txt", "4 Mar 2024\n")
            equal(m.out("b"), "2024-03-04\n")


def test_reload__failed_model_repaired__serves_without_a_mount():
    def damage(m):
        os.unlink(m.artifact("xor") + "/manifest.sig")

    with Models(models=("xor",), damage=damage, wait=False) as m:
        until(lambda: m.serving() and health_says(m, "failed"), 20, "failed")
        m.sign("xor")
        until(lambda: health_says(m, "ready"), 20, "ready")
        m.put("a.json", XOR)
        equal(json.loads(m.out("a"))["outputs"][0]["data"], [1])


def test_reload__touched_only__stays_as_it_is():
    with Models() as m:
        os.utime(m.artifact("dates") + "/calbin/weights.safetensors")
        before = m.calls("configure")
        for i in range(5):
            os.utime(m.artifact("dates") + "/manifest.json")
            m.put(f"a{i}.txt", "3 Mar 2024\n")
            equal(m.out(f"a{i}"), "2024-03-03\n")
            time.sleep(0.5)
        equal(m.calls("configure"), before)


def test_dump_ini__asked_for__only_in_the_closed_folder():
    """Addresses and paths are written where only the daemon's user may look."""
    with Models("dump_ini", models=("xor",)) as m:
        folder = m.store + "/diagnostic"
        equal(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        assert os.listdir(folder), "the runtime wrote nothing"
        for name in os.listdir(folder):
            equal(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) & 0o077, 0)
        equal(run(["grep", "-rl", m.store, m.path]).stdout, "")
    with Models(models=("xor",)) as m:
        assert not os.path.exists(m.store + "/diagnostic")
