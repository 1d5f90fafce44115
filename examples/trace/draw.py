#!/usr/bin/env python3
"""Draws a trace as a picture: draw.py LAST.json OUT.svg

LAST.json is control/trace/last.json of a mount. The picture has a row for each job and one for the
device, a bar for each event, in two scales: all the time in which jobs ran, and a piece of it around
the first delivery, in which the short events are seen too. What is inside a kv_update is drawn below
it. Times are milliseconds since the first event. The background is left free: it is read on white and
on black.
"""
import json
import sys

WIDTH, LEFT, RIGHT = 1060, 76, 14  # of the picture, of the names, of what is behind the last bar
BAR, DEPTH, ROW = 15, 7, 29        # heights: a bar, one inside another, a row
HEAD, AXIS, TOP = 26, 30, 34       # of a part's title, of its axis, of the legend
MARK = 60                          # width of a mark's text
LEAST, INNER_LEAST = 0.9, 0.2      # widths: the shortest event's; of one inside another to be drawn
PIECE_US = (34, 8)                 # of the second part: before the first delivery, and from it on
GREY = "#7d8590"
COLORS = {"queue": "#8b949e", "transfer_in": "#e0a021", "compute": "#3d85d8", "checks": "#2ea44f",
          "transfer_out": "#e36f2c", "kv_update": "#9a6ee0", "delivery": "#d6457a"}
INSIDE = "kv_update"  # the only one that has others in it


def read_events(path):
    """The events of jobs, by begin; times in µs since the first event of the trace."""
    with open(path, encoding="utf-8") as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    first = min((e["ts"] for e in events), default=0)
    found = [{"name": e["name"], "job": e["args"]["job"], "begin": e["ts"] - first,
              "end": e["ts"] - first + e["dur"], "depth": 0}
             for e in events if e["name"] in COLORS and e["args"]["job"]]
    if not any(e["name"] == "compute" for e in found):
        sys.exit(f"{path}: no job computed while it was recorded")
    set_depths(found)
    return found


def set_depths(events):
    """What is inside a kv_update of its job is one deeper."""
    outer = {}
    for e in sorted(events, key=lambda e: (e["begin"], -e["end"])):
        around = outer.get(e["job"])
        if around and e["end"] <= around["end"] and e["name"] != INSIDE:
            e["depth"] = 1
        if e["name"] == INSIDE:
            outer[e["job"]] = e


def windows(events):
    """[(title, from, to)]: all of the running, and the piece around the first delivery."""
    ran = [e for e in events if e["name"] != "queue"]
    start, end = min(e["begin"] for e in ran), max(e["end"] for e in ran)
    margin = (end - start) * 0.03
    parts = [("all the time in which jobs ran", start - margin, end + margin / 3)]
    delivered = min((e["begin"] for e in ran if e["name"] == "delivery"), default=start)
    before, after = PIECE_US
    parts.append((f"{before + after} µs of it, around the first delivery", delivered - before,
                  delivered + after))
    return parts


def steps_of(span):
    """Between two marks of the axis, in µs: 1, 2 or 5 of a power of ten, about eight in all."""
    step = 10 ** -3
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= 10:
                return step * factor
        step *= 10


class Part:
    """One scale: where a time is, and what is drawn in it."""

    def __init__(self, title, begin, end, top, jobs):
        self.title, self.begin, self.end, self.top, self.jobs = title, begin, end, top, jobs
        self.scale = (WIDTH - LEFT - RIGHT) / (end - begin)
        self.bottom = top + HEAD + ROW * (len(jobs) + 1)

    def x(self, time):
        """Of a time, kept inside."""
        return LEFT + (min(max(time, self.begin), self.end) - self.begin) * self.scale

    def row(self, number):
        """Top of a row."""
        return self.top + HEAD + ROW * number

    def axis(self):
        """Its title, marks, and the rows' names."""
        yield f'<text x="{LEFT}" y="{self.top + 15}" class="t">{self.title}</text>'
        step = steps_of(self.end - self.begin)
        mark = -(-self.begin // step)
        digits = 1 if step >= 100 else 2 if step >= 10 else 3
        while mark * step <= self.end:
            x = self.x(mark * step)
            yield f'<path d="M{x:.1f} {self.row(0) - 4}V{self.bottom}" class="l"/>'
            if x < WIDTH - MARK / 2:
                yield (f'<text x="{x:.1f}" y="{self.bottom + 14}" text-anchor="middle">'
                       f'{mark * step / 1000:.{digits}f} ms</text>')
            mark += 1
        for i, name in enumerate([f"job {j}" for j in self.jobs] + ["device"]):
            yield f'<text x="{LEFT - 8}" y="{self.row(i) + 12}" text-anchor="end">{name}</text>'

    def bars(self, events, row):
        """The bars of one row, one path for each colour, and the names of those that are wide."""
        shapes, names = {}, []
        for e in events:
            if e["end"] < self.begin or e["begin"] > self.end:
                continue
            x, wide = self.x(e["begin"]), self.x(e["end"]) - self.x(e["begin"])
            if e["depth"] and wide < INNER_LEAST:
                continue
            y, high = self.row(row) + (BAR if e["depth"] else 0), DEPTH if e["depth"] else BAR
            shapes.setdefault(e["name"], []).append(
                f'M{x:.1f} {y}h{max(wide, LEAST):.1f}v{high}H{x:.1f}z')
            text = e.get("text", e["name"])
            if not e["depth"] and wide > 8 * len(text):
                names.append(f'<text x="{x + wide / 2:.1f}" y="{y + 11}" class="b">{text}</text>')
        for name, paths in shapes.items():
            yield f'<path class="{name}" d="{"".join(paths)}"/>'
        yield from names

    def draw(self, events):
        """All of it."""
        yield from self.axis()
        for i, job in enumerate(self.jobs):
            yield from self.bars([e for e in events if e["job"] == job], i)
        on_device = [dict(e, text=f"job {e['job']}") for e in events
                     if e["name"] not in ("queue", "delivery")]
        yield from self.bars(on_device, len(self.jobs))


def legend():
    """Which colour is what."""
    x = LEFT
    for name, color in COLORS.items():
        yield f'<rect x="{x}" y="8" width="14" height="12" fill="{color}"/>'
        yield f'<text x="{x + 19}" y="18">{name}</text>'
        x += 38 + 7 * len(name)


def draw(events):
    """The picture's text."""
    jobs, parts, top = sorted({e["job"] for e in events}), [], TOP
    for title, begin, end in windows(events):
        parts.append(Part(title, begin, end, top, jobs))
        top = parts[-1].bottom + AXIS
    style = f"text{{font:12px sans-serif;fill:{GREY}}}.t{{font-weight:bold}}" \
            ".b{font-size:11px;fill:#fff;text-anchor:middle}" \
            f".l{{stroke:{GREY};stroke-opacity:.35;stroke-width:.6}}"
    style += "".join(f".{name}{{fill:{color}}}" for name, color in COLORS.items())
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" '
             f'height="{top}" role="img"><title>A trace of {len(jobs)} jobs</title>',
             f"<style>{style}</style>", *legend()]
    for part in parts:
        lines += part.draw(events)
    return "\n".join(lines + ["</svg>"]) + "\n"


def main():
    """The command line."""
    if len(sys.argv) != 3:
        sys.exit("usage: draw.py LAST.json OUT.svg")
    picture = draw(read_events(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(picture)


if __name__ == "__main__":
    main()
