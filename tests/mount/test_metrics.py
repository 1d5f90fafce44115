"""metrics and health: texts that programs read (K16)."""

import errno
import os
import re
import shutil
import subprocess

from harness import (BUILD, DELAY, LONG_REQUEST, SLOW, Mount, at_once, equal, ok, read, run,
                     until)
from test_models import Models

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? -?[0-9.e+-]+')


def check(text):
    """A whole exposition: promtool's opinion where it is, and ours."""
    assert text and text.endswith("\n"), text[-50:]
    seen = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            assert LINE.fullmatch(line), line
            assert line.rsplit(" ", 1)[0] not in seen, line
            seen.add(line.rsplit(" ", 1)[0])
    if shutil.which("promtool"):
        r = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=False,
                           capture_output=True, timeout=20 * SLOW)
        equal((r.returncode, r.stdout, r.stderr), (0, "", ""), "promtool")


def test_metrics__every_state_of_the_daemon__a_whole_exposition():
    """The last line ends; no name is there twice (K16-01)."""
    with Mount(DELAY) as m:
        check(read(m.path + "/metrics"))
        m.put("a.json", LONG_REQUEST)
        m.send("bad.json", "{]")
        m.runs("a")
        check(read(m.path + "/metrics"))
        os.unlink(m.job("a.json"))
        check(read(m.path + "/metrics"))


def test_metrics_and_health__sessions_and_planted_faults__whole_and_by_the_form():
    """What is new in them keeps their rules (K16-01, K16-06)."""
    with Mount("fault=Wait@2:hang/Free@9999:silent", "wait_limit=1s", "kv_sequences=2") as m:
        for word, ask in (("ready", ""), ("recovering", '{"prompt":"hello\\n","session":"s"}')):
            m.put("a.json", ask)
            until(lambda w=word: read(m.path + "/health").startswith(w + "\n"), 10, word)
            check(read(m.path + "/metrics"))
            text, capabilities = read(m.path + "/health"), read(m.path + "/capabilities")
            assert text.endswith("\n") and capabilities.endswith("\n"), text
            for line in text.splitlines()[1:]:
                assert re.fullmatch(r"[a-z_]+: .+", line), line
            equal(os.path.exists(m.path + "/ready"), word == "ready", "ready")
        equal(m.metric("npufs_sessions"), 1)
        equal(read(m.path + "/sessions/s/state").split("\n")[0], "in use")
        m.stop(status=1)


def test_metrics__hostile_names__no_text_of_users_in_labels():
    """Names of files and models are no labels (K16-03, K16-04)."""
    with Mount() as m:
        names = ('quo"te', "back\\slash", "brace},{", "tab é ' ü", "ä" * 100)
        for name in names:
            m.put(name + ".txt", "text")
            m.send(name + "2.json", '{"model":"a\\"b\\\\c\\nd","prompt":"x"}')
            m.done(name)
        text = read(m.path + "/metrics")
        check(text)
        for name in names:
            assert name not in text, name


def test_metrics__jobs__counted_by_how_they_ended():
    """Each way to end has its counter."""
    with Mount() as m:
        m.put("good.txt", "abc")
        m.done("good")
        m.send("bad.json", "{]")
        m.done("bad")
        text = read(m.path + "/metrics")
        for line in ('npufs_jobs_finished_total{state="done"} 1', "npufs_jobs_accepted_total 1",
                     'npufs_jobs_finished_total{state="failed"} 1', "npufs_prompt_tokens_total 4",
                     "npufs_requests_refused_total 1", "npufs_output_tokens_total 3",
                     'npufs_health_state{state="ready"} 1'):
            assert line in text.splitlines(), (line, text)


def test_health__ready__first_word_and_ready_file():
    """One word for programs, then key: value (K16-06)."""
    with Mount() as m:
        lines = read(m.path + "/health").splitlines()
        equal(lines[0], "ready", "first word")
        for line in lines[1:]:
            assert re.fullmatch(r"[a-z_]+: .+", line), line
        equal(read(m.path + "/ready"), "ready\n", "ready")
        assert "for measuring only" in read(m.path + "/health")
        assert read(m.path + "/version").startswith("npufs: ")


def test_health__no_model__failed_and_requests_refused():
    """Without a model nothing is ready, and a request says why (K16-06)."""
    with Mount("device=sim") as m:
        equal(read(m.path + "/health").split("\n")[0], "failed", "first word")
        assert "reason: " in read(m.path + "/health")
        equal(os.path.exists(m.path + "/ready"), False, "ready")
        check(read(m.path + "/metrics"))
        equal(m.send("a.txt", "x"), errno.ENOENT, "a request without a model")
        m.put("a.bin", "inert files are welcome")
        ok(["find", m.path])


def test_health__device_busy__answers_at_once():
    """A slow device does not slow health (K16-07)."""
    with Mount("sim_delay=1s") as m:
        m.put("a.txt", "x")
        m.runs("a")
        at_once(m.path + "/health")
        os.unlink(m.job("a.txt"))


def test_readme__in_the_mount__names_what_is_there():
    """The mount explains itself, and its lines work."""
    with Mount() as m:
        text = read(m.path + "/README")
        for name in os.listdir(m.path):
            if name != "README":
                assert name in text, name
        assert max(len(line) for line in text.splitlines()) <= 100
        line = [x for x in text.splitlines() if "echo" in x and ".txt" in x][0]
        line = line.partition("  #")[0]
        equal(run(f"cd {m.path} && {line}").stdout, "a prompt for the default model\n", line)


# Of the device contract 1, 2 and 7; those of the KV manager are told by what they mean.
CALLS = """CreateVDevice Status GetDeviceInfo EnableTraceDevice ReadMem WriteMem ResetCCU Reset
ResetConfiguration Release Shutdown EnableParallelMode SubmitJob CreateCalbin configure
GetCalbinBrief GetModelByName GetAllModels GetModelByType GetPairedElf GetGlobalMemInfo GetLLMInfo
Report GetStackLoc Version GetModelWorloadByName GetGoldenInputByModelName
GetGoldenOutputByModelName createInputBuf createOutputBuf SliceTensorByName ResetTensorByName
ResetAllTensors MapBuf SliceTensor UndoSlice GetCsrValueByName SetCsrByName infer
infer_with_fixed_task_type Wait GetStatus GetWaitTime RelocateTensorAddress AllocDevMem
canAllocate isExist GetSeqLen""".split()


def test_capabilities__device_calls__one_line_each():
    """Every call of the device is listed once."""
    with Mount() as m:
        lines = read(m.path + "/capabilities").splitlines()
        rows = re.findall(r"^  (\S.*?)(?: and the other times)? +C\d ", "\n".join(lines), re.M)
        listed = [name for row in rows for name in row.split(", ")]
        equal([c for c in CALLS if listed.count(c) != 1], [], "calls")
        assert len(lines) == len(set(lines)), len(lines)
        assert not proven(m, "golden") and not proven(m, "matrix"), lines


def proven(m, how):
    """What capabilities says is proven here in this way."""
    text = read(m.path + "/capabilities")
    return set(re.findall(rf"^  (\S.*?) +(?:C\d|unknown) +{how} ", text, re.M))


def test_capabilities__golden_runs_and_matrix__told_as_what_they_prove():
    """What is proven on this very device with this model, and by what."""
    with Models() as m:
        golden = proven(m, "golden")
        assert {"infer", "Wait", "configure", "apply"} <= golden, golden
        assert not golden & {"ResetCCU", "clear", "infer_with_fixed_task_type"}, golden
        m.stop()
        ok(f"{BUILD}/npufs-admin matrix {m.store} dates")
        m.start()
        until(lambda: os.path.exists(m.path + "/ready"), 20, "ready")
        matrix = proven(m, "matrix")
        assert golden | {"ResetCCU", "clear", "infer_with_fixed_task_type"} <= matrix, matrix
        assert not matrix & {"ReadMem, WriteMem", "copy sequence, keep only", "GetModelByType"}


def test_capabilities__golden_runs_without_kv__prove_nothing_of_it():
    """A model of tensors has neither sequences nor CSRs."""
    with Models(models=("xor",)) as m:
        golden = proven(m, "golden")
        assert {"infer", "Wait", "configure"} <= golden, golden
        assert not golden & {"apply", "allocate, free", "SetCsrByName", "GetLLMInfo"}, golden
