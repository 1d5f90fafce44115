"""Requests and answers in others' shapes: OpenAI's completions, KServe's tensors, NumPy's files."""

import errno
import json
import os
import struct
import time

import harness
from harness import U1, U2, Mount, as_user, equal, read, write
from test_models import Models

E = errno
ONES = struct.pack("<2f", 1, 1)
ONE_ZERO = struct.pack("<2f", 1, 0)


def npy(data, descr="<f4", shape=(1, 2), fortran=False):
    """A file as numpy.save() writes it."""
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + data


def tensor(**more):
    """The one input of xor; a value None leaves a member out."""
    members = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 0], **more}
    return {k: v for k, v in members.items() if v is not None}


def body(x=None, **more):
    """An infer request."""
    return json.dumps({"model": "xor", "inputs": [x or tensor()], **more})


def out_bytes(m, stem):
    """STEM.out as it is."""
    with open(m.job(stem + ".out"), "rb") as f:
        return f.read()


def told(m, stem):
    """The text of STEM.err, of a job that fails."""
    equal(m.done(stem)["state"], "failed", stem)
    return read(m.job(stem + ".err"))


def error_object(m, stem):
    """STEM.err as others have it."""
    return json.loads(told(m, stem))["error"]


def with_file(m, stem, name, content, **more):
    """Ask with an input from a file beside the request; the answer's data."""
    write(m.job(name), content)
    m.put(stem + ".json", body(tensor(file=name, data=None, **more)))
    m.done(stem)
    return json.loads(m.out(stem))["outputs"][0]["data"]


# --- OpenAI ---------------------------------------------------------------------------------------


def test_openai__completion_body__answered_as_one():
    ask = {"model": "echo", "prompt": "some text", "max_tokens": 4, "temperature": 0, "n": 1,
           "stream": False, "logprobs": None, "user": "me", "echo": False, "stop": None,
           "presence_penalty": 0, "frequency_penalty": 0, "best_of": 1, "logit_bias": None,
           "seed": 1, "suffix": None, "top_p": 1, "stream_options": None}
    before = int(time.time())
    with Mount() as m:
        m.put("a.json", json.dumps(ask))
        got = json.loads(m.out("a"))
        assert got.pop("id").startswith("cmpl-"), got
        assert before <= got.pop("created") <= time.time(), got
        usage = got.pop("usage")
        equal(got, {"object": "text_completion", "model": "echo", "choices": [
            {"text": "some", "index": 0, "logprobs": None, "finish_reason": "length"}]})
        s = m.status("a")
        equal((usage["prompt_tokens"], usage["completion_tokens"]),
              (int(s["prompt_tokens"]), int(s["output_tokens"])), "usage")
        equal(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])


def test_openai__prompt_forms__one_prompt_each():
    with Mount() as m:
        for i, prompt in enumerate(("AB", ["AB"], [65, 66], [[65, 66]])):
            m.put(f"a{i}.json", json.dumps({"prompt": prompt, "output": "openai"}))
            got = json.loads(m.out(f"a{i}"))
            assert got["choices"][0]["text"], got
        equal(m.send("b.json", '{"prompt":["a","b"],"n":1}'), E.EINVAL, "two prompts")


def test_openai__request_id__in_the_answer():
    with Mount() as m:
        m.put("a.json", '{"prompt":"x","id":"my-7","n":1}')
        equal(json.loads(m.out("a"))["id"], "cmpl-my-7")
        equal(m.status("a")["request_id"], "my-7", "status")


def test_openai__what_cannot_be_honoured__refused_at_the_write():
    rows = (("n", 2), ("best_of", 3), ("logprobs", 1), ("suffix", "end"), ("logit_bias", {"1": 5}),
            ("presence_penalty", 0.5), ("frequency_penalty", -1),
            ("stream_options", {"include_everything": True}))
    with Mount() as m:
        for i, (field, value) in enumerate(rows):
            equal(m.send(f"a{i}.json", json.dumps({"prompt": "x", field: value})), E.EINVAL, field)
            text = read(m.job(f"a{i}.err"))
            assert field in text, text


def test_openai__prompt_too_long__its_error_object():
    with Models() as m:
        m.put("a.json", json.dumps({"prompt": "x" * 500, "max_tokens": 4}))
        got = error_object(m, "a")
        equal((got["type"], got["param"], got["code"]),
              ("invalid_request_error", "prompt", "context_length_exceeded"), str(got))
        assert "502" in got["message"] and "64" in got["message"], got


# --- KServe ---------------------------------------------------------------------------------------


def test_kserve__infer_request__answered_as_one():
    ask = {"id": "42", "model": "xor", "parameters": {"binary_data_output": False},
           "inputs": [tensor(data=[[1, 0]], parameters={"content_type": "np"})],
           "outputs": [{"name": "y", "parameters": {"binary_data": False}}]}
    with Models(models=("xor",)) as m:
        equal(m.ask("a", ask), {"model_name": "xor", "id": "42", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [1]}]})
        equal(m.status("a")["request_id"], "42", "status")


def test_kserve__unknown_output__nearest_named():
    with Models(models=("xor",)) as m:
        m.put("a.json", body(outputs=[{"name": "Y"}]))
        text = told(m, "a")
        assert "no output" in text and "did you mean" in text, text


def test_kserve__binary_extension__refused_with_what_to_do():
    with Models(models=("xor",)) as m:
        output = {"name": "y", "parameters": {"binary_data": True}}
        rows = ({"parameters": {"binary_data_output": True}}, {"outputs": [output]})
        for i, more in enumerate(rows):
            equal(m.send(f"a{i}.json", body(**more)), E.EINVAL, str(more))
            text = read(m.job(f"a{i}.err"))
            assert '"raw"' in text, text


def test_kserve__wrong_shape__its_error_object():
    with Models(models=("xor",)) as m:
        m.put("a.json", body(tensor(shape=[2], datatype="INT8")))
        got = error_object(m, "a")
        assert "int8[2]" in got and "float32[1,2]" in got, got


def test_kserve__output_json__own_error_lines():
    with Models(models=("xor",)) as m:
        m.put("a.json", body(tensor(shape=[2]), output="json"))
        assert told(m, "a").startswith("error: 22 EINVAL\n")


# --- forms of output ------------------------------------------------------------------------------


def test_output__npy_and_raw__bytes_exact():
    one = struct.pack("<f", 1)
    with Models(models=("xor",)) as m:
        m.put("a.json", body(output="npy"))
        equal(out_bytes(m, "a"), npy(one, shape=(1, 1)), ".npy")
        equal(os.stat(m.job("a.out")).st_size, 132, "size")
        m.put("b.json", body(output="raw"))
        equal(out_bytes(m, "b"), one, "raw")
        m.put("c.json", body(output="raw", outputs=[{"name": "y"}]))
        equal(out_bytes(m, "c"), one, "raw, named")


def test_output__that_does_not_fit__refused_at_the_write():
    with Models(models=("xor",)) as m:
        rows = ('{"prompt":"x","output":"npy"}', '{"prompt":"x","output":"raw"}',
                body(output="text"), body(output="openai"), body(output="numpy"),
                '{"prompt":"x","outputs":[{"name":"y"}]}')
        for i, text in enumerate(rows):
            equal(m.send(f"a{i}.json", text), E.EINVAL, text)
            assert "output" in m.err(f"a{i}")["field"], text


# --- files beside the request ---------------------------------------------------------------------


def test_files__names_that_lead_elsewhere__refused_at_the_write():
    names = ("../x.npy", "..", "/etc/passwd", "sub/x.npy", ".x.npy", "", "a.json", "a.out", "a.txt",
             "a\nb.npy", "n" * 256)
    with Models(models=("xor",)) as m:
        for i, name in enumerate(names):
            equal(m.send(f"r{i}.json", body(tensor(file=name, data=None))), E.EINVAL, name)
            equal(m.err(f"r{i}")["field"], "inputs[0].file", name)


def test_files__npy_and_raw__as_if_inline():
    with Models(models=("xor",)) as m:
        equal(with_file(m, "a", "x.npy", npy(ONE_ZERO), shape=None, datatype=None), [1], "npy")
        equal(with_file(m, "b", "x.bin", ONES), [0], "raw")
        equal(with_file(m, "c", "y.npy", npy(ONES)), [0], "npy with shape and datatype")


def test_files__wrong_content__both_sides_told():
    rows = ((npy(ONES + ONES, shape=(2, 2)), "float32[2,2]", "float32[1,2]"),
            (npy(ONES, descr="<f8", shape=(1, 1)), "float64[1,1]", "float32[1,2]"),
            (npy(ONES, descr=">f4"), "big-endian", "byte 20"),
            (npy(ONES)[:-1], "7 bytes", "takes 8"),
            (npy(ONES) + b"\0", "9 bytes", "takes 8"),
            (npy(ONES, fortran=True), "Fortran", "byte"),
            (b"hello", "no .npy file", "byte 0"),
            (npy(struct.pack("<2f", 1, float("nan"))), "element 1", "finite"))
    with Models(models=("xor",)) as m:
        for i, (content, one, other) in enumerate(rows):
            write(m.job(f"x{i}.npy"), content)
            m.send(f"a{i}.json", body({"name": "x", "file": f"x{i}.npy"}))
            text = told(m, f"a{i}")
            assert one in text and other in text, text


def test_files__that_are_no_readable_files__refused():
    with Models(models=("xor",)) as m:
        os.mkdir(m.job("folder.npy"))
        m.send("a.json", body({"name": "x", "file": "folder.npy"}))
        m.send("b.json", body({"name": "x", "file": "nothing.npy"}))
        for stem, name in (("a", "folder.npy"), ("b", "nothing.npy")):
            text = told(m, stem)
            assert name in text, text


def test_files__of_another_user__only_with_his_leave():
    harness.need_root()
    ask = body({"name": "x", "file": "x.npy"})
    with Models(models=("xor",)) as m:
        as_user(U2, write, m.job("x.npy"), npy(ONE_ZERO))
        as_user(U1, m.send, "a.json", ask)
        text = told(m, "a")
        assert "x.npy" in text and "float32" not in text, text
        os.chmod(m.job("x.npy"), 0o644)
        as_user(U1, m.put, "b.json", ask)
        equal(json.loads(m.out("b"))["outputs"][0]["data"], [1], "with leave")


def test_files__of_a_request_that_was_removed_while_written__nothing_to_judge():
    """It has no folder any more in which its file could be."""
    with Models(models=("xor",)) as m:
        with open(m.job("a.json"), "w", encoding="utf-8") as f:
            os.unlink(m.job("a.json"))
            f.write(body({"name": "x", "file": "x.npy"}))
            f.flush()
        with_file(m, "b", "x.npy", npy(ONE_ZERO), shape=None, datatype=None)


def test_files__changed_while_the_request_waits__as_they_are_when_it_runs():
    with Models("sim_delay=500ms", "max_active=1", models=("dates", "xor")) as m:
        for name in ("x.npy", "y.npy", "z.npy"):
            write(m.job(name), npy(ONES))
        m.put("first.txt", "3 Mar 2024")
        for stem in ("x", "y", "z"):
            m.put(stem + ".json", body({"name": "x", "file": stem + ".npy"}))
        write(m.job("x.npy"), npy(ONE_ZERO))
        os.unlink(m.job("y.npy"))
        write(m.job(".new"), npy(ONE_ZERO))
        os.rename(m.job(".new"), m.job("z.npy"))
        equal(m.state("x"), "queued", "too late for this test")
        equal(json.loads(m.out("x"))["outputs"][0]["data"], [1], "written anew")
        for stem in ("y", "z"):
            text = told(m, stem)
            assert stem + ".npy" in text, text


def test_files__of_another_group__not_by_who_wrote_the_request():
    """Who closes or runs a request is not its owner: only the owner as the file names him counts."""
    harness.need_root()
    with Models(models=("xor",)) as m:
        as_user(U2, write, m.job("x.npy"), npy(ONE_ZERO))
        os.chmod(m.job("x.npy"), 0o640)
        as_user(U1, m.send, "a.json", body({"name": "x", "file": "x.npy"}), groups=(U2,))
        assert "x.npy" in told(m, "a"), "read by another group of the writer"


def test_files__of_the_requests_own_folder__not_of_another():
    with Models(models=("xor",)) as m:
        os.mkdir(m.job("sub"))
        write(m.job("x.npy"), npy(ONE_ZERO))
        m.send("sub/a.json", body({"name": "x", "file": "x.npy"}))
        text = told(m, "sub/a")
        assert "x.npy" in text, text
        equal(in_folder(m), [0], "its own")


def in_folder(m):
    """The answer of a request whose file is in its own subfolder."""
    write(m.job("sub/x.npy"), npy(ONES))
    m.put("sub/b.json", body({"name": "x", "file": "x.npy"}))
    return json.loads(m.out("sub/b"))["outputs"][0]["data"]
