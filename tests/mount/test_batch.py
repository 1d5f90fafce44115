"""Batches: STEM.jsonl, one request a line, one answer a line."""

import errno
import json
import os
import time

import harness
from harness import U1, U2, Mount, Skip, as_user, equal, read, until, write
from test_models import Models

E = errno
SLOW_DEVICE = ("sim_delay=20ms", "max_active=1")
MIB = 1 << 10  # in kilobytes


def line(i, prompt="x", **more):
    """A line with an id of its own."""
    return json.dumps({"custom_id": str(i), "prompt": prompt, **more}) + "\n"


def lines(n, first=1, **more):
    """Good lines, each with another prompt."""
    return "".join(line(i, f"p{i}", **more) for i in range(first, first + n))


def answers(m, stem, result=".out"):
    """The answers, parsed; of .out all, once there are all."""
    text = read(m.job(stem + result))
    assert not text or text.endswith("\n"), text[-100:]
    return [json.loads(x) for x in text.splitlines()]


def peek(m, stem):
    """The answers there are now."""
    fd = os.open(m.job(stem + ".stream"), os.O_RDONLY | os.O_NONBLOCK)
    try:
        got = b""
        while True:
            try:
                piece = os.read(fd, 1 << 16)
            except BlockingIOError:
                return got.decode()
            if not piece:
                return got.decode()
            got += piece
    finally:
        os.close(fd)


def texts(got):
    """Id and text of good answers, id and the error's name of others."""
    return [(a["custom_id"], a["response"]["text"] if a["response"] else a["error"]["name"])
            for a in got]


def expected(n):
    """What lines(n) is answered by."""
    return [(str(i), f"p{i}") for i in range(1, n + 1)]


def counts(m, stem):
    """lines, lines_done and lines_failed of the status."""
    s = m.status(stem)
    return tuple(int(s[k]) for k in ("lines", "lines_done", "lines_failed"))


# --- answers --------------------------------------------------------------------------------------


def test_lines__answered_in_order__also_live():
    with Mount(*SLOW_DEVICE) as m:
        m.put("b.jsonl", lines(20))
        with open(m.job("b.stream"), "rb") as f:
            first = f.readline()
            equal(json.loads(first)["custom_id"], "1", "first")
            assert m.state("b") == "running", m.state("b")
            assert "b.out" not in m.list(), "listed before the end"
            until(lambda: 1 < counts(m, "b")[1] < 20, 10, "half done")
            equal(counts(m, "b")[0], 20, "lines")
            live = first + f.read()
        got = answers(m, "b")
        equal(texts(got), expected(20), "answers")
        equal([a["line"] for a in got], list(range(1, 21)), "line numbers")
        equal(live.decode(), m.out("b"), "stream and out")
        equal(os.stat(m.job("b.out")).st_size, len(live), "size")
        equal((m.state("b"), counts(m, "b")), ("done", (20, 20, 0)), "status")
        assert m.list() == ["b.jsonl", "b.out", "b.status"], m.list()


def test_bad_lines__spoil_only_themselves():
    bad = (("{broken\n", "EINVAL"), (line(2, temprature=1), "EINVAL"), (line(3, seed=-1), "ERANGE"),
           (line(4, model="nothing"), "EINVAL"), (line(5, deadline_ms=100), "EINVAL"),
           ('"text"\n', "EINVAL"), (line(7, "x" * 5000), "E2BIG"))
    with Mount() as m:
        m.put("b.jsonl", line("a") + "".join(x for x, _ in bad) + line("z"))
        got = answers(m, "b")
        equal(texts(got)[0], ("a", "x"), "first")
        equal(texts(got)[-1], ("z", "x"), "last")
        equal([a["error"]["name"] for a in got[1:-1]], [e for _, e in bad], "errors")
        for i, a in enumerate(got[1:-1]):
            assert f"line {i + 2}: " in a["error"]["reason"], a
        equal((m.state("b"), counts(m, "b")), ("done", (9, 2, 7)), "status")
        assert "b.err" not in m.list(), m.list()


def test_custom_id__twice__the_second_names_both_lines():
    with Mount() as m:
        m.put("b.jsonl", line("a") + line("b") + line("a", "y") + line("a", "z"))
        got = answers(m, "b")
        equal([name for _, name in texts(got)], ["x", "x", "EINVAL", "EINVAL"])
        for n in (3, 4):
            reason = got[n - 1]["error"]["reason"]
            assert f"line {n}:" in reason and "line 1" in reason, reason


def test_line_ends__bom_crlf_blank_and_none_at_the_end__taken():
    with Mount() as m:
        text = "\ufeff" + line(1).replace("\n", "\r\n") + "\r\n \t\n\n" + line(2) + line(3)[:-1]
        m.put("b.jsonl", text)
        got = answers(m, "b")
        equal(texts(got), [("1", "x"), ("2", "x"), ("3", "x")])
        equal([a["line"] for a in got], [1, 5, 6], "as an editor counts")
        equal(counts(m, "b"), (3, 3, 0))


def test_nothing_good__all_bad_or_blank__done():
    with Mount() as m:
        m.put("a.jsonl", "one\ntwo\nthree\n")
        equal([a["error"]["name"] for a in answers(m, "a")], ["EINVAL"] * 3)
        equal((m.state("a"), counts(m, "a")), ("done", (3, 0, 3)))
        m.put("b.jsonl", "\n\r\n  \n")
        equal(m.out("b"), "", "blank lines only")
        equal((m.state("b"), counts(m, "b")), ("done", (0, 0, 0)))


def test_openai__batch_lines__answered_as_such():
    def ask(i, **body):
        return json.dumps({"custom_id": i, "method": "POST", "url": "/v1/completions",
                           "body": body}) + "\n"
    with Mount() as m:
        m.put("b.jsonl", ask("a", model="echo", prompt="hello", max_tokens=3) +
              ask("b", prompt="x", n=2) + ask("c", prompt=[65, 66, 256]))
        got = answers(m, "b")
        assert all(a["id"].startswith("batch_req_") for a in got), got
        equal([a["custom_id"] for a in got], ["a", "b", "c"])
        response = got[0]["response"]
        equal((response["status_code"], response["body"]["object"]), (200, "text_completion"))
        equal(response["body"]["choices"][0]["text"], "hel")
        equal((got[1]["response"], set(got[1]["error"])), (None, {"code", "message"}))
        assert got[2]["error"] is None, got[2]


def test_tensors__as_documents():
    with Models(models=("xor",)) as m:
        m.put("b.jsonl", "".join(json.dumps({"inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, i]}]}) + "\n"
                                 for i in (0, 1)) + line("c"))
        got = answers(m, "b")
        equal([a["response"]["outputs"][0]["data"] for a in got[:2]], [[1], [0]])
        assert got[2]["error"], got


def test_model__of_the_first_line__is_the_batchs():
    with Mount() as m:
        equal(m.send("a.jsonl", line(1, model="nothing") + line(2)), E.ENOENT, "close")
        equal(m.done("a")["state"], "failed")
        equal(m.err("a")["error"], "2 ENOENT")
        m.put("b.jsonl", line(1, model="echo") + line(2))
        equal(texts(answers(m, "b")), [("1", "x"), ("2", "x")])


def test_rename__of_a_file__runs_as_a_batch():
    with Mount() as m:
        m.put("b.tmp", lines(3))
        os.rename(m.job("b.tmp"), m.job("b.jsonl"))
        equal(texts(answers(m, "b")), expected(3))
        equal(m.send("b.json", harness.REQUEST), E.EEXIST, "one stem, one job")
        m.put("b.jsonl", lines(2))
        equal(texts(answers(m, "b")), expected(2), "again")


# --- cancelled, killed, stopped -------------------------------------------------------------------


def test_rm__in_the_middle__cancelled_and_nothing_left():
    with Mount(*SLOW_DEVICE) as m:
        m.put("b.jsonl", lines(500))
        until(lambda: counts(m, "b")[1] > 2, 10, "begun")
        with open(m.job("b.out"), "rb") as waiting:
            os.unlink(m.job("b.jsonl"))
            equal(m.list(), [], "left")
            equal(harness.errno_of(waiting.read), E.ECANCELED, "its reader")
        with harness.took(5, "another job"):
            m.put("c.txt", "text")
            equal(m.out("c"), "text\n", "the device is free")
        equal(m.metric("npufs_jobs_running"), 0, "running")


def test_kill__in_the_middle__only_unanswered_lines_again():
    with Mount("sim_delay=10ms", "max_active=1") as m:
        m.put("b.jsonl", lines(60, max_new_tokens=8))
        until(lambda: counts(m, "b")[1] >= 20, 20, "a third")
        before = peek(m, "b")
        m.kill()
        m.start()
        until(lambda: counts(m, "b")[1] >= before.count("\n"), 10, "goes on behind them")
        assert peek(m, "b").startswith(before), "the answers of before"
        equal(texts(answers(m, "b")), expected(60), "all, in order, none twice")
        equal((m.state("b"), counts(m, "b")), ("done", (60, 60, 0)))
        equal(m.metric("npufs_jobs_started_total"), 1, "started")
        left = range(before.count("\n") + 1, 61)
        equal(counts(m, "b")[1], 60, "lines_done")
        assert m.metric("npufs_output_tokens_total") <= sum(len(f"p{i}") for i in left), "again"
        assert m.out("b").startswith(before), "the answers of before"


def test_kill__again_and_again__complete_in_the_end():
    with Mount("sim_delay=5ms", "max_active=2") as m:
        as_user(U1, m.put, "a.jsonl", lines(100) + "bad\n")
        as_user(U2, m.put, "b.jsonl", lines(100))
        for _ in range(4):
            time.sleep(0.3)
            m.kill()
            m.start()
        equal(texts(answers(m, "a")), expected(100) + [(None, "EINVAL")])
        equal(texts(answers(m, "b")), expected(100))
        equal(counts(m, "a"), (101, 100, 1))


def test_stop__in_the_middle__goes_on_after_the_next_start():
    with Mount(*SLOW_DEVICE) as m:
        m.put("b.jsonl", lines(60))
        until(lambda: counts(m, "b")[1] >= 5, 20, "begun")
        m.stop()
        m.start()
        equal(texts(answers(m, "b")), expected(60))
        equal(m.metric("npufs_jobs_finished_total"), 1, "finished")


# --- with others ----------------------------------------------------------------------------------


def test_single_job__while_a_batch_runs__does_not_wait_for_it():
    with Mount(*SLOW_DEVICE) as m:
        as_user(U1, m.put, "b.jsonl", lines(300))
        until(lambda: counts(m, "b")[1] > 2, 10, "begun")
        before = counts(m, "b")[1]
        as_user(U2, m.put, "a.txt", "text")
        equal(m.out("a"), "text\n")
        passed = counts(m, "b")[1] - before
        assert m.state("b") != "done" and passed < 20, passed
        before = counts(m, "b")[1]
        as_user(U1, m.put, "c.txt", "text")
        equal(m.out("c"), "text\n", "the same user's")
        assert counts(m, "b")[1] - before < 20, "the same user's"


def test_two_batches__of_two_users__alternate():
    with Mount(*SLOW_DEVICE) as m:
        as_user(U1, m.put, "a.jsonl", lines(100))
        until(lambda: counts(m, "a")[1] > 2, 10, "begun")
        ahead = counts(m, "a")[1]
        as_user(U2, m.put, "b.jsonl", lines(20))
        m.done("b")
        passed = counts(m, "a")[1] - ahead
        assert 10 <= passed <= 40, passed
        equal(texts(answers(m, "b")), expected(20))


# --- sizes ----------------------------------------------------------------------------------------


def test_many_lines__memory_bounded():
    if "san-" in harness.BUILD:
        raise Skip("a sanitizer keeps what was freed")
    n = 100000
    with Mount() as m:
        m.put("w.jsonl", lines(100))
        m.done("w")
        before = m.rss()
        write(m.job("b.jsonl"), lines(n))
        top = before
        while m.state("b") not in harness.ENDED:
            top = max(top, m.rss())
            time.sleep(0.05)
        equal(texts(answers(m, "b")), expected(n))
        grown = max(top, m.rss()) - before
        assert grown < 32 * MIB, f"{grown} kB"


test_many_lines__memory_bounded.limit = 120


def test_batch_size__reached__efbig():
    with Mount("batch_size=10k", "request_size=1k") as m:
        m.put("a.jsonl", lines(40))  # more than a request may have
        equal(m.done("a")["state"], "done")
        equal(m.send("b.jsonl", line("x" * 90) * 200), E.EFBIG, "write")
        m.put("c.jsonl", "x\n" * 100)  # errors are longer than the lines
        equal(m.done("c")["state"], "failed")
        equal(m.err("c")["error"], "27 EFBIG", "answers")


def test_durable__batch__as_any_request():
    with Mount("durable") as m:
        m.put("b.jsonl", lines(10))
        equal(texts(answers(m, "b")), expected(10))
