"""Bad and odd requests: each is refused with field, place and reason, or taken exactly (K14)."""

import errno
import json
import os

from harness import Mount, equal, read, run, write

E = errno
BOM = b"\xef\xbb\xbf"
NEVER = ("NaN", "Infinity", "-Infinity", "nan", "01", ".5", "5.", "0x10", "+1", "1e", "--1", "1_0",
         "TRUE", "None", "'1'", "1 2", "undefined")


def at(text, part):
    """Offset of a part of a text, as .err shows it."""
    return str(text.index(part))


def with_offset(text, part, err, field, word):
    """A row of the table: the fault is at `part`."""
    return text, err, field, at(text, part), word


# The request, the errno, and of .err: field, offset, a word of the reason.
BAD = (
    (b'[1,2]', E.EINVAL, None, "0", "array"),
    (b'"hi"', E.EINVAL, None, "0", "string"),
    (b'null', E.EINVAL, None, "0", "null"),
    (b'7 ', E.EINVAL, None, "0", "number"),
    (b'true', E.EINVAL, None, "0", "true"),
    (b'{}', E.EINVAL, "prompt", "0", ""),
    (b'{"prompt":null}', E.EINVAL, "prompt", "0", ""),
    with_offset(b'{"model":1,"prompt":"x"}', b"1,", E.EINVAL, "model", "string"),
    with_offset(b'{"prompt":{"a":1}}', b'{"a"', E.EINVAL, "prompt", "string"),
    with_offset(b'{"prompt":["x","y"]}', b'"y"', E.EINVAL, "prompt", ""),
    with_offset(b'{"prompt":""}', b'""', E.EINVAL, "prompt", "empty"),
    (b'{"model":"nope","prompt":"x"}', E.ENOENT, "model", None, "no model"),
    (b'{"model":"ehco","prompt":"x"}', E.ENOENT, "model", None, "echo"),
    (b'{"promt":"x"}', E.EINVAL, "promt", None, "prompt"),
    (b'{"prompt":"x","max_new_token":1}', E.EINVAL, "max_new_token", None, "max_new_tokens"),
    (b'{"prompt":"x","prompt":"y"}', E.EINVAL, "prompt", "14", "twice"),
    (b'{"prompt":"x","max_tokens":1,"max_new_tokens":1}', E.EINVAL, "max_new_tokens", "46",
     "twice"),
    with_offset(b'{"prompt":"x","max_new_tokens":0}', b"0}", E.ERANGE, "max_new_tokens", ""),
    with_offset(b'{"prompt":"x","temperature":2.5}', b"2.5", E.ERANGE, "temperature", ""),
    with_offset(b'{"prompt":"x","top_p":0}', b"0}", E.ERANGE, "top_p", ""),
    with_offset(b'{"prompt":"x","top_k":1.5}', b"1.5", E.EINVAL, "top_k", "integer"),
    with_offset(b'{"prompt":"x","stream":1}', b"1}", E.EINVAL, "stream", ""),
    with_offset(b'{"prompt":"x","priority":101}', b"101", E.ERANGE, "priority", ""),
    with_offset(b'{"prompt":"x","deadline_ms":0}', b"0}", E.ERANGE, "deadline_ms", ""),
    with_offset(b'{"prompt":"x","session":".s"}', b'".s"', E.EINVAL, "session", "dot"),
    with_offset(b'{"prompt":"x","session":7}', b"7", E.EINVAL, "session", "string"),
    with_offset(b'{"prompt":"x","session":""}', b'""', E.EINVAL, "session", "64"),
    with_offset(b'{"prompt":"x","session":"a b"}', b'"a b"', E.EINVAL, "session", "letters"),
    with_offset(b'{"prompt":"x","session":"\xc3\xa9"}', b'"\xc3', E.EINVAL, "session", "letters"),
    with_offset(b'{"prompt":"x","session":"%s"}' % (b"s" * 65), b'"sss', E.EINVAL, "session", "64"),
    with_offset(b'{"prompt":"x"} {"prompt":"y"}', b'{"prompt":"y"}', E.EINVAL, None, "more text"),
    with_offset(b'{"prompt":"z"}x', b"x", E.EINVAL, None, "more text"),
    with_offset(b'{"prompt":"x",}', b"}", E.EINVAL, None, "comma"),
    with_offset(b"{'prompt':'x'}", b"'", E.EINVAL, None, "quotes"),
    with_offset(b'{"prompt":"x" // c\n}', b"//", E.EINVAL, None, "comment"),
    with_offset(b'{"prompt":"a\nb"}', b"\n", E.EINVAL, None, "control"),
    with_offset(b'{"prompt":"\\x41"}', b"x41", E.EINVAL, None, "escape"),
    with_offset(b'{"prompt":"\\ud800"}', b'"}', E.EINVAL, None, "surrogate"),
    with_offset(b'{"prompt":"\\u0000"}', b'0"', E.EINVAL, None, "NUL"),
    with_offset(b'{"model":"m","prompt":"a\xff\xc3b"}', b"\xff", E.EILSEQ, None, "UTF-8"),
    with_offset(b'{"prompt":"\xed\xa0\x80"}', b"\xa0", E.EILSEQ, None, "UTF-8"),
    (b"\xff\xfe{\0", E.EILSEQ, None, "0", "UTF-16"),
    (b"\xfe\xff\0{", E.EILSEQ, None, "0", "UTF-16"),
    (b"{\0\"\0p\0", E.EILSEQ, None, None, "UTF-16"),
    (b'{"prompt":"x"', E.EINVAL, None, "13", "not closed"),
    (b'{"prompt":"x', E.EINVAL, None, "12", "not closed"),
    (b" \n ", E.EINVAL, None, "3", ""),
)


def refusal(m, name, text):
    """Send a bad request: (errno of the calls, status, .err), then remove it."""
    stem = name.partition(".")[0]
    got = m.send(name, text)
    status = m.done(stem)
    raw = read(m.job(stem + ".err"))  # valid UTF-8, or this fails
    result = got, status, dict(x.split(": ", 1) for x in raw.splitlines())
    assert stem + ".out" not in m.list()
    os.unlink(m.job(name))
    return result


def check_refusal(m, row):
    """One row of the table."""
    text, want, field, offset, word = row
    got, status, err = refusal(m, "ty.json", text)
    equal(got, want, f"errno for {text}")
    equal(status["state"], "failed", str(text))
    equal(status["error"].split()[0], str(want), f"error of {text}: {err}")
    equal(err.get("field"), field, f"field for {text}: {err}")
    if offset is not None:
        equal(err.get("offset"), offset, f"offset for {text}: {err}")
    assert word in err["reason"] + err.get("action", ""), (text, err)


def test_json__every_fault__errno_field_offset_and_reason():
    """What is wrong is said by the call, .status and .err alike (K14-01, K14-02, K14-09, K14-11,
    K14-14)."""
    with Mount() as m:
        pid, wrong = m.pid, []
        for row in BAD:
            try:
                check_refusal(m, row)
            except AssertionError as e:
                wrong.append(str(e))
        assert not wrong, "\n".join(wrong)
        equal((m.started(), m.proc.poll(), m.pid), (0, None, pid), "runs, daemon")


def test_json__written_by_a_shell__redirection_fails():
    """cat, printf and echo report what is wrong with a complete request (K14)."""
    with Mount() as m:
        for number, (text, *_) in enumerate(BAD[:20]):
            write(m.dir + "/source", text)
            r = run(f"cat {m.dir}/source > {m.job(f's{number}.json')}")
            assert r.returncode != 0 or not text.strip(), (text, r)
        r = run(["bash", "-c", f"printf '[1]' > {m.job('p.json')}"])
        assert r.returncode != 0 and "Invalid argument" in r.stderr, r


def test_json__one_byte_a_time__same_verdict():
    """The verdict does not depend on how it is written."""
    with Mount() as m:
        for text, want, *_, word in BAD:
            if word == "UTF-16":
                continue  # two bytes tell it
            fd = os.open(m.job("b.json"), os.O_WRONLY | os.O_CREAT, 0o600)
            for i in range(len(text)):
                try:
                    os.write(fd, text[i:i + 1])
                except OSError:
                    break
            try:
                os.close(fd)
            except OSError:
                pass
            equal(m.done("b")["error"].split()[0], str(want), f"{text}")
            os.unlink(m.job("b.json"))


def test_json__byte_order_mark_and_crlf__accepted():
    """Text made on Windows is text (K14-01)."""
    with Mount() as m:
        m.put("bom.json", BOM + b'{"model":"echo",\r\n"prompt":"x"}\r\n')
        equal(m.out("bom"), "x\n", "JSON")
        m.put("bom.txt.tmp", BOM + b"hi\r\n")
        os.rename(m.job("bom.txt.tmp"), m.job("crlf.txt"))
        equal(m.out("crlf"), "hi\n", "text")


def test_text__not_utf8__refused():
    """Bytes that are no text are refused with their place (K14-02)."""
    with Mount() as m:
        rows = ((b"\xc0\xaf\xed\xa0\x80", E.EILSEQ, "0"), (b"ab\xff", E.EILSEQ, "2"),
                (b"nul\0byte", E.EINVAL, "3"), (b"cut \xe2\x82", E.EILSEQ, "4"),
                (b"\n", E.EINVAL, "0"), (BOM + b"\r\n", E.EINVAL, "0"))
        for text, want, offset in rows:
            _, status, err = refusal(m, "bu.txt", text)
            equal((status["error"].split()[0], err["offset"]), (str(want), offset), str(text))
        m.put("split.txt", "")
        with open(m.job("split.txt"), "wb", buffering=0) as f:
            for byte in "ä€🙂".encode():
                f.write(bytes([byte]))
        equal(m.out("split"), "ä€🙂\n", "characters written byte by byte")
        equal(m.started(), 1, "runs")


def test_json__deep_nesting__refused_and_alive():
    """No stack is as deep as a text may be (K14-05)."""
    deep = b'{"a":' * 100000 + b"1" + b"}" * 100000
    with Mount() as m:
        for text in (b"[" * 2000000, deep, b'{"prompt":' + b"[" * 64 + b"]" * 64 + b"}"):
            _, status, err = refusal(m, "dn.json", text)
            assert status["state"] == "failed" and "nesting deeper than 64" in err["reason"], err
        m.put("a.txt", "text")
        equal(m.out("a"), "text\n", "the next")


def test_seed__sixty_four_bits__exact_or_refused():
    """Integers never pass through a double (K14-09)."""
    exact = ("9007199254740993", "1000000000000000", "18446744073709551615", "9223372036854775808",
             "0", "1.0", "1e3")
    with Mount() as m:
        for seed in exact:
            got = m.send("sd.json", '{"prompt":"x","seed":%s}' % seed)
            status = m.done("sd")
            if got == 0:
                equal(status["seed"], str(int(float(seed)) if "." in seed or "e" in seed else
                                          int(seed)), seed)
            else:
                assert seed in ("1.0", "1e3"), (seed, status)
            os.unlink(m.job("sd.json"))
        for seed in ("18446744073709551616", "-1", "1e400", "0.5", '"1"', "1e30"):
            _, status, err = refusal(m, "sd.json", '{"prompt":"x","seed":%s}' % seed)
            equal((status["state"], err.get("field", "seed")), ("failed", "seed"), seed)


def test_numbers__not_json__refused():
    """NaN, Infinity and other notations do not get in (K14-11)."""
    with Mount() as m:
        for number in NEVER + ("1e999",):
            got, status, _ = refusal(m, "nn.json", '{"prompt":"x","temperature":%s}' % number)
            equal(status["state"], "failed", number)
            assert got != 0, number
        m.put("zero.json", '{"prompt":"x","temperature":-0}')
        equal(m.out("zero"), "x\n", "-0")


def test_text__final_newline__exactly_one_dropped():
    """One rule for every text (K14-13)."""
    rows = ((b"Q", "Q"), (b"Q\n", "Q"), (b"Q\n\n", "Q\n"), (b"  Q  ", "  Q  "), (b"Q\r\n", "Q"),
            (b"\nQ\n", "\nQ"), (b"Q\n\r\n", "Q\n"), (b"Q\r", "Q\r"), (b" \n", " "))
    with Mount() as m:
        for number, (text, prompt) in enumerate(rows):
            m.put(f"t{number}.txt", text)
            m.put(f"j{number}.json", json.dumps({"prompt": prompt}))
            with open(m.job(f"t{number}.out"), newline="", encoding="utf-8") as f:
                equal(f.read(), prompt + "\n", str(text))
            counts = [m.done(s)["prompt_tokens"] for s in (f"t{number}", f"j{number}")]
            equal(counts[0], counts[1], f"tokens of {text}")
        m.put("long.txt", "l" * 2000 + "\n")
        equal(len(m.out("long")), 2001, "a long one")


def test_fields__all_that_are_offered__accepted():
    """A request may say all of it, and OpenAI's words."""
    ours = {"model": "echo", "prompt": "text", "max_new_tokens": 3, "temperature": 0, "top_k": 1,
            "top_p": 1, "min_p": 0, "seed": 7, "stop": ["zz"], "repeat_penalty": 1,
            "deadline_ms": 60000, "stream": False, "priority": 1, "request_id": "id-1",
            "output": "json"}
    theirs = {"model": "echo", "prompt": "text", "max_tokens": 2, "n": 1, "user": "u",
              "logprobs": None, "stop": None, "echo": True}
    with Mount() as m:
        m.put("a.json", json.dumps(ours))
        document = json.loads(m.out("a"))
        equal((document["text"], document["request_id"]), ("tex", "id-1"), str(document))
        equal(m.status("a")["request_id"], "id-1", "status")
        equal(m.status("a")["finish_reason"], "length", "status")
        m.put("b.json", json.dumps(theirs))
        equal(json.loads(m.out("b"))["choices"][0]["text"], "textte", "echo and max_tokens")
        m.put("c.json", json.dumps({"tokens": [65, 66]}))
        assert m.out("c"), "bare tokens"
        m.put("d.json", read(m.path + "/models/echo/example.json"))
        equal(m.out("d"), "hello\n", "the model's example")


def test_output__json__parses_with_every_character():
    """The document is JSON whatever the text (K14-11)."""
    prompt = "q\" b\\ n\n t\t \x01 \x7f é € 🙂 \u2028"
    with Mount() as m:
        m.put("a.json", json.dumps({"prompt": prompt, "output": "json"}))
        equal(json.loads(m.out("a"))["text"], prompt, "text")


def test_error_text__hostile_names__one_line_each_and_valid_utf8():
    """What a user wrote does not forge lines of .err."""
    with Mount() as m:
        for key in ("a\\nerror: 0 OK", "\\u001b[31m", "x" * 4000, "\\u2028", "é" * 300):
            _, status, err = refusal(m, "h.json", '{"prompt":"x","%s":1}' % key)
            equal(status["error"], "22 EINVAL", key)
            assert err["error"] == "22 EINVAL" and len(err["field"].encode()) < 48, err
