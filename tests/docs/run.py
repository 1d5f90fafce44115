#!/usr/bin/env python3
"""Holds README.md to the program: its console blocks are run and compared, its tables compared.

A block ```console is run in a shell whose folder is the mount of a fresh store; ```console host in the
repository's folder. Lines that begin with "$ " are commands, the others what they print: "..." in a line
stands for anything, a line "..." alone for any lines. Ends with "N passed, N failed".
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
import harness  # noqa: E402

README = harness.read(os.path.join(harness.TOP, "README.md"))
INSIDE = "NPUFS_DOCS_INSIDE"
LIMIT = 120


class Documented(harness.Mount):
    """The mount that the README's tour shows: the example models on the software device."""

    def start(self):
        os.rmdir(os.path.join(self.store, "models"))
        os.rmdir(self.store)
        subprocess.run(["sh", "examples/make-store.sh", self.store], check=True, cwd=harness.TOP,
                       env={**os.environ, "BUILD": harness.BUILD}, capture_output=True)
        return super().start()

    def command(self):
        return [self.program, self.store, self.path, "-f"]


def blocks():
    """(info, [(command, expected lines)]) of every console block."""
    for info, body in re.findall(r"^```(console[^\n]*)\n(.*?)^```", README, re.M | re.S):
        steps = []
        for line in body.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif steps:
                steps[-1][1].append(line)
        yield info, steps


def pattern_of(lines):
    """A regular expression for the expected lines."""
    parts = [r"(?:.*\n)*?" if x == "..." else
             ".*".join(re.escape(p) for p in x.split("...")) + r"\n" for x in lines]
    return re.compile("".join(parts) + r"\Z")


def run_step(command, folder):
    """What a command prints, errors included."""
    outer = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    env = {**outer, "LC_ALL": "C", "BUILD": harness.BUILD, "USER": "you",
           "PATH": harness.BUILD + ":" + os.environ["PATH"]}
    r = subprocess.run(["bash", "-c", command], cwd=folder, env=env, timeout=LIMIT, check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = r.stdout.decode("utf-8", "replace")
    text = re.sub(r"^bash: line \d+: ", "bash: ", text, flags=re.M)
    return text if text.endswith("\n") or not text else text + "\n"


def check_step(command, want, folder):
    """None, or what is wrong."""
    got = run_step(command, folder)
    if want and not pattern_of(want).match(got):
        return "printed:\n" + got
    return None


def rows(heading):
    """The first table below a heading, as lists of cells without the backquotes."""
    part = README.split("\n" + heading + "\n", 1)
    if len(part) < 2:
        return []
    lines = [x for x in part[1].split("\n## ")[0].splitlines() if x.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", x.strip("|")) for x in lines[2:]]
    return [[c.strip().strip("`").replace("\\|", "|") for c in row] for row in cells]


def options_shown():
    """name -> (range, default) as the program's help has them."""
    text = harness.ok([os.path.join(harness.BUILD, "npufs"), "--help"])
    found = dict.fromkeys(re.findall(r"^  ([a-z_]+)(?:=[A-Z]+)? {2,}\S", text, re.M), ("", ""))
    pattern = r"^  ([a-z_]+)=[A-Z]+ .*\n +\((.+); default (.+)\)$"
    found.update({n: (r, d) for n, r, d in re.findall(pattern, text, re.M)})
    return found


def check_options(_):
    """The table of options is the program's."""
    shown = options_shown()
    told = {r[0]: (r[2], r[1]) for r in rows("## Mount options")}
    harness.equal(told, shown, "options")


def check_fields(m):
    """The table of request fields is the program's."""
    schema = harness.ok(["cat", m.path + "/models/dates/schema"])
    shown = dict(re.findall(r'^    "(\w+)": "(.*?)",?$', schema.replace('\\"', "'"), re.M))
    told = {r[0]: r[1].replace('"', "'") for r in rows("## Request fields")}
    harness.equal(told, shown, "fields")


def check_nodes(m):
    """Every node of the mount's own README is in this one."""
    text = harness.read(m.path + "/README")
    for name in re.findall(r"^  (\S+) {2,}\S", text, re.M):
        name = name.replace("MODEL/", "").removeprefix("models/").removeprefix("manifests/")
        assert f"`{name}`" in README or f"`{name.removeprefix('jobs/')}`" in README, name


def check_jobs(m):
    """Every kind of file in jobs/ is in the mount's own README."""
    shown = set(re.findall(r"^  (jobs/STEM\S+)", harness.read(m.path + "/README"), re.M))
    told = set(re.findall(r"jobs/STEM\.\w+", " ".join(r[0] for r in rows("## Every node"))))
    harness.equal(told, shown, "jobs")


def check_errors(m):
    """The table of the device's errors is the program's."""
    text = harness.read(m.path + "/capabilities")
    shown = dict(re.findall(r"^  [ \d]\d (\w+) +([a-z_]+) ", text, re.M))
    told = {name: r[1] for r in rows("## When the device fails") for name in r[0].split(", ")}
    harness.equal(told, shown, "errors")


def check_commands(_):
    """Every command of npufs-admin is in the README."""
    text = harness.ok([os.path.join(harness.BUILD, "npufs-admin"), "--help"])
    commands = re.findall(r"^  ((?:[a-z0-9]+ )+)", text, re.M)
    assert commands, text
    for command in commands:
        assert "npufs-admin " + command.strip() in README, command


TABLES = [check_options, check_fields, check_nodes, check_jobs, check_errors, check_commands]


def main():
    """Run everything; the exit status."""
    passed = failed = 0
    with Documented() as m, tempfile.TemporaryDirectory() as scratch:
        os.environ["SCRATCH"] = scratch
        harness.until(lambda: os.path.exists(m.path + "/ready"), 20, "ready")
        for info, steps in blocks():
            folder = harness.TOP if "host" in info else m.path
            for command, want in steps:
                wrong = check_step(command, want, folder)
                print(f"{'not ok' if wrong else 'ok'} - $ {command}")
                if wrong:
                    print(wrong)
                passed, failed = passed + (not wrong), failed + bool(wrong)
        for check in TABLES:
            try:
                check(m)
                print(f"ok - {check.__doc__}")
                passed += 1
            except AssertionError as e:
                print(f"not ok - {check.__doc__}\n{e}")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.geteuid() == 0 and not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable,
                              *sys.argv])
    sys.exit(main())
