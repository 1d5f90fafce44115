#!/usr/bin/env python3
"""Free-form dates to ISO 8601: the reference parser, and a generator of strings.

The parser is the specification of the model beside it; README.md states its conventions for users.
The generator makes the strings the model is trained on and, apart from them, the held-out strings
it is tested on.  Nothing but the standard library is needed.

    dates.py heldout N SEED     N lines INPUT<TAB>EXPECTED that training never saw
    dates.py unambiguous        lines INPUT<TAB>EXPECTED on which date(1) must agree
    dates.py parse STRING       the reference answer for one string
"""

import argparse
import calendar
import functools
import hashlib
import itertools
import random
import re
import signal
import string
from dataclasses import dataclass

MAX_INPUT_BYTES = 48
INVALID = "invalid"

BOS, SEP, EOS = 256, 257, 258
VOCAB_SIZE = 259

# ---- names ---------------------------------------------------------------------------------------

MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september",
          "october", "november", "december"]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAY_ABBREVIATIONS = ["mon", "tue", "tues", "wed", "weds", "thu", "thur", "thurs", "fri", "sat",
                         "sun"]
UNITS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
TEENS = ["tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
         "seventeenth", "eighteenth", "nineteenth"]
ORDINALS = (UNITS + TEENS + ["twentieth"] + [f"twenty-{unit}" for unit in UNITS]
            + ["thirtieth", "thirty-first"])
ORDINAL_DAY = {word: day for day, word in enumerate(ORDINALS, 1)}

SHORTEST_MISSPELT = 5


def one_edit(word):
    """The words one edit from `word`, by the kind of edit."""
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    letters = string.ascii_lowercase
    kinds = {
        "delete": {a + b[1:] for a, b in splits if b},
        "swap": {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1},
        "substitute": {a + c + b[1:] for a, b in splits if b for c in letters},
        "insert": {a + c + b for a, b in splits for c in letters},
    }
    return {kind: sorted(words - {word}) for kind, words in kinds.items()}


def month_spellings():
    """Every accepted spelling of a month, exact or with one typo, and its number."""
    exact = {"sept": 9}
    misspelt = {}
    for number, name in enumerate(MONTHS, 1):
        exact[name] = exact[name[:3]] = number
        if len(name) >= SHORTEST_MISSPELT:
            for words in one_edit(name).values():
                for word in words:
                    misspelt.setdefault(word, set()).add(number)
    unambiguous = {word: min(numbers) for word, numbers in misspelt.items() if len(numbers) == 1}
    return {**unambiguous, **exact}


MONTH_NUMBER = month_spellings()

# ---- the reference parser ------------------------------------------------------------------------

# A word ends where its letters end, so words must be apart; a word and a number may touch.
_END = r"(?![a-z])"
_ORDINAL = "|".join(sorted((word.replace("-", r"[-\s]*") for word in ORDINALS),
                           key=len, reverse=True))
_WEEKDAY = rf"(?:{'|'.join(WEEKDAYS + WEEKDAY_ABBREVIATIONS)}){_END}"
_BETWEEN = r"\s*[-,./]?\s*"
_DAY = (rf"(?:the{_END}\s*)?"
        rf"(?:(?P<day>\d{{1,2}}(?!\d))(?:\s*(?:st|nd|rd|th){_END})?|(?P<ordinal>{_ORDINAL}){_END})")
_MONTH = r"(?P<name>[a-z]++)\.?"
_FULL_YEAR = r"(?<!\d)(?P<year>\d{4})(?!\d)"
_YEAR = rf"(?:{_FULL_YEAR}|(?<!\d)(?:['’]\s*)?(?P<short>\d{{2}}))"
_SHORT_DAY = r"(?P<day>\d{1,2})"
_NUMBER = r"(?P<month>\d{1,2})"
_SAME = r"\s*(?P=mark)\s*"
_TIME = r"(?:\s*t\s*|\s+)\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s*z|\s*[-+]\d\d:?\d\d)?"


def _form(pattern):
    return re.compile(rf"\s*{pattern}\s*", re.ASCII)


FORMS = [
    _form(rf"(?P<year>\d{{4}})\s*(?P<mark>[-/.])\s*{_NUMBER}{_SAME}{_SHORT_DAY}"),
    _form(rf"(?P<year>\d{{4}})\s*-\s*{_NUMBER}\s*-\s*{_SHORT_DAY}{_TIME}"),
    _form(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)"),
    _form(rf"(?P<year>\d{{4}})\s*年\s*{_NUMBER}\s*月\s*{_SHORT_DAY}\s*日"),
    _form(rf"{_NUMBER}\s*(?P<mark>/)\s*{_SHORT_DAY}{_SAME}{_YEAR}"),
    _form(rf"{_SHORT_DAY}\s*(?P<mark>[-.])\s*{_NUMBER}{_SAME}{_YEAR}"),
    _form(rf"{_DAY}(?:(?:\s*day)?\s*of{_END})?{_BETWEEN}{_MONTH}{_BETWEEN}{_YEAR}"),
    _form(rf"{_MONTH}{_BETWEEN}{_DAY}{_BETWEEN}{_YEAR}"),
    _form(rf"{_FULL_YEAR}{_BETWEEN}{_MONTH}{_BETWEEN}{_DAY}"),
]
WEEKDAY_BEFORE = re.compile(rf"\s*{_WEEKDAY}\.?\s*,?", re.ASCII)
WEEKDAY_AFTER = re.compile(rf"\s*,?\s*(?<![a-z]){_WEEKDAY}\.?\s*$", re.ASCII)


def _without_weekday(text):
    """Drop one weekday name, from the front or else from the end."""
    before = WEEKDAY_BEFORE.match(text)
    if before:
        return text[before.end():]
    return WEEKDAY_AFTER.sub("", text, count=1)


def _year_of(fields):
    if fields.get("year"):
        return int(fields["year"])
    short = int(fields["short"])
    return short + (1900 if short >= 69 else 2000)


def read_fields(text):
    """The (year, month, day) that `text` is written as, possible or not, or None."""
    text = _without_weekday(text.lower())
    for form in FORMS:
        match = form.fullmatch(text)
        if not match:
            continue
        fields = match.groupdict()
        month = MONTH_NUMBER.get(fields["name"]) if "name" in fields else int(fields["month"])
        if month is None:
            continue
        if fields.get("ordinal"):
            day = ORDINAL_DAY[re.sub(r"(?<=y)[-\s]*(?=[a-z])", "-", fields["ordinal"])]
        else:
            day = int(fields["day"])
        return _year_of(fields), month, day
    return None


def is_date(year, month, day):
    """Whether the day exists, by the Gregorian rule, in the years 1000 to 2999."""
    return (1000 <= year <= 2999 and 1 <= month <= 12
            and 1 <= day <= calendar.monthrange(year, month)[1])


def answer(fields):
    if fields is None or not is_date(*fields):
        return INVALID
    return "%04d-%02d-%02d" % fields


def parse(text):
    """The specification: `YYYY-MM-DD`, or `invalid`."""
    if len(text.encode()) > MAX_INPUT_BYTES:
        return INVALID
    return answer(read_fields(text))


def encode(text):
    """The prompt's tokens: its bytes between the two markers."""
    return [BOS, *text.encode(), SEP]


# ---- the split: one sixteenth is held out --------------------------------------------------------


def _sixteenth(key):
    return hashlib.sha256(key.encode()).digest()[0] % 16 == 0


@functools.lru_cache(maxsize=1 << 20)
def is_held_out_date(year, month, day):
    """Whether this (year, month, day), possible or not, is kept out of training in every form."""
    return _sixteenth(f"{year}-{month}-{day}")


def is_held_out(text, fields):
    """Whether `text`, read as `fields`, is kept out of training.

    A string that is no date goes by its letters, so that all strings which differ in case, digits
    and punctuation go together; one without letters goes by all its characters.
    """
    if fields is not None:
        return is_held_out_date(*fields)
    letters = "".join(filter(str.isalpha, text.lower()))
    return _sixteenth(letters or text.strip())


# ---- the generator -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mix:
    """What a set of strings is made of, as shares of one."""

    held_out: bool | None          # the side of the split; None for either
    dates: float = 0.78
    named: float = 0.60            # of dates: with a month's name
    typo: float = 0.12             # of those: misspelt, where the name is long enough
    leap_day: float = 0.0          # of dates: 29 February, of a leap year or not
    bad_day: float = 0.0           # of dates: day 0 or past 31
    bad_month: float = 0.0         # of dates: month 0 or past 12
    bad_year: float = 0.0          # of dates: before 1000 or after 2999
    corrupted: float = 0.20        # of non-dates: a date with a character or two changed
    line_end: float = 0.0          # of all: with the end of line that echo(1) writes


TRAINING = Mix(held_out=False, typo=0.28, leap_day=0.09, bad_day=0.03, bad_month=0.02,
               bad_year=0.01, corrupted=0.40, line_end=0.08)
TEST = Mix(held_out=True)
EITHER = Mix(held_out=None)

WORDS = """
about account after again ago apple april's arch archer are august's autumn avril away back bank bee
before bird blue book box bread bus by call car cat century chapter city class cloud code coffee
cold data date day days deadline december's decade deck dinner dog door early east easter end error
eve evening every fall february's file fish five flight four fourteen friend from game garden
gift go good green half happy heart hello holiday hour house how ides in invalid it item jam jan's
janvier jar juice jungle junior juror lunch last late later letter line list london lost love lunes
machine mai maize major man maple mark market mars mayor meeting memo menu midnight mild minute
money month moon morning movie music name never new next night no none noon north note novel now
null number ocean octave october's octopus office okay old on once one order page paper paris party
past pay phone pink plan please price quarter queen quick rain random red remember report river
room sale school season sea send seven seminar sentinel separate set seventeen shop six sky snow
soon south spring star start stop street summer sun's ten test text thanks then thirty three time
today tomorrow tonight total train tree twenty two undefined unknown update version visit wait walk
warm was water week weekend weeks west what when white why wind winter word work world year years
yellow yes yesterday you zero
""".split()
FOREIGN_MONTHS = """
januar februar märz mai juni juli oktober dezember janvier février mars avril juin juillet août
septembre octobre novembre décembre enero febrero marzo abril mayo junio julio agosto septiembre
octubre noviembre diciembre gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
styczeń januari maart augustus fevereiro março maio setembro outubro dezembro vendémiaire brumaire
""".split()
RELATIVE = ["today", "tomorrow", "yesterday", "now", "next week", "last year", "this month",
            "next friday", "last monday", "in {} days", "{} days ago", "{} weeks ago",
            "{} months ago", "in {} years", "day {}", "week {}", "Q{}", "the {}th", "{} o'clock",
            "half past {}", "{} am", "{} pm", "end of {}", "chapter {}", "room {}", "page {} of 90"]
SCRIPTS = ["今日は", "明日", "昨日", "日付", "сегодня", "марта", "мая", "μάρτιος", "اليوم", "오늘",
           "naïve", "café", "Zürich", "straße", "año", "🎉", "📅", "€", "½", "…", "—"]
PRINTABLE = [chr(c) for c in range(32, 127)]


def some_year(rng):
    """Half of the years anywhere, half of them near today."""
    return rng.randint(1000, 2999) if rng.random() < 0.5 else rng.randint(1940, 2068)


def some_slip(rng, mix):
    """What is out of the ordinary about the next date, by the mix's shares; mostly nothing."""
    shares = (mix.leap_day, mix.bad_day, mix.bad_month, mix.bad_year)
    slips = ("leap day", "bad day", "bad month", "bad year", None)
    return rng.choices(slips, (*shares, 1 - sum(shares)))[0]


def some_fields(rng, mix):
    """A (year, month, day) of the mix, on its side of the split."""
    while True:
        year, month, day = some_year(rng), rng.randint(1, 12), rng.randint(1, 31)
        slip = some_slip(rng, mix)
        if slip == "leap day":
            month, day = 2, 29
            if rng.random() < 0.3:
                year = rng.randint(10, 29) * 100
        elif slip == "bad day":
            day = rng.choice([0, 30, 31, 32, 33, rng.randint(32, 99)])
        elif slip == "bad month":
            month = rng.choice([0, 13, 14, rng.randint(13, 99)])
        elif slip == "bad year":
            year = rng.choice([rng.randint(0, 999), rng.randint(3000, 9999)])
        if mix.held_out in (None, is_held_out_date(year, month, day)):
            return year, month, day


def some_case(rng, word):
    """The word in title, lower or upper case, rarely in a mixture."""
    chance = rng.random()
    if chance < 0.55:
        return word.title() if "'" not in word else word.capitalize()
    if chance < 0.80:
        return word
    if chance < 0.96:
        return word.upper()
    return "".join(rng.choice((c, c.upper())) for c in word)


def some_typo(rng, word):
    """The word with one edit, each kind of edit alike likely."""
    return rng.choice(_one_edit_lists(word)[rng.randrange(4)])


@functools.lru_cache(maxsize=64)
def _one_edit_lists(word):
    return list(one_edit(word).values())


def some_month_name(rng, mix, month):
    """The month's name, in full, abbreviated or misspelt."""
    name = MONTHS[month - 1]
    if len(name) >= SHORTEST_MISSPELT and rng.random() < mix.typo:
        return some_case(rng, some_typo(rng, name))
    if rng.random() < 0.6:
        return some_case(rng, name)
    short = "sept" if month == 9 and rng.random() < 0.4 else name[:3]
    return some_case(rng, short) + ("." if rng.random() < 0.15 else "")


def suffix_of(day):
    """The ordinal suffix of a day's number."""
    if day % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def some_day(rng, day):
    """The day as a number, with or without its suffix, or as a word."""
    chance = rng.random()
    if chance < 0.15 and 1 <= day <= 31:
        word = ORDINALS[day - 1]
        return some_case(rng, word.replace("-", " ") if rng.random() < 0.3 else word)
    if chance < 0.45:
        suffix = suffix_of(day) if rng.random() < 0.95 else rng.choice(("st", "nd", "rd", "th"))
        return f"{day}{suffix.upper() if rng.random() < 0.1 else suffix}"
    return f"{day:02d}" if chance < 0.65 else str(day)


def some_two_digit_year(rng, year, share):
    """The year's last two digits in the given share of cases, where they mean this year."""
    if 1969 <= year <= 2068 and rng.random() < share:
        return f"{year % 100:02d}"
    return f"{year:04d}"


def some_weekday(rng):
    """A weekday's name, in full or abbreviated."""
    names = WEEKDAYS if rng.random() < 0.5 else WEEKDAY_ABBREVIATIONS
    return some_case(rng, rng.choice(names))


def some_space(rng):
    """Mostly one space."""
    chance = rng.random()
    return " " if chance < 0.9 else "" if chance < 0.95 else "  "


def named_date(rng, mix, fields, name=None):
    """A date with the month's name, or `name` in its place."""
    year, month, day = fields
    name = name or some_month_name(rng, mix, month)
    full = some_two_digit_year(rng, year, 0.3)
    if len(full) == 2 and rng.random() < 0.3:
        full = rng.choice("'''’") + full
    day = some_day(rng, day)
    chance = rng.random()
    if chance < 0.16:
        mark = rng.choice(("-", "-", "/", ".", "", ""))
        parts = (day, name, full) if rng.random() < 0.75 else (f"{year:04d}", name, day)
        return mark.join(parts)
    gap, gap2 = some_space(rng), some_space(rng)
    comma = rng.choice(("", ","))
    if chance < 0.52:
        link = rng.choice(("", "", "", "", "of ", "of ", "day of "))
        the = "the " if rng.random() < 0.2 else ""
        return f"{some_case(rng, the)}{day}{gap}{link}{name}{comma}{gap2}{full}"
    if chance < 0.88:
        the = "the " if rng.random() < 0.08 else ""
        return f"{name}{gap}{the}{day}{comma}{gap2}{full}"
    return f"{year:04d}{rng.choice(('', '', ','))}{gap}{name}{gap2}{day}"


def some_time(rng):
    """A time of day as it follows an ISO date."""
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    if rng.random() < 0.6:
        clock += f":{rng.randint(0, 59):02d}"
        if rng.random() < 0.2:
            clock += f".{rng.randint(0, 999):03d}"
    zone = rng.choice(("", "", "Z", "+01:00", "-0500", " +0000"))
    return rng.choice("T  ") + clock + zone


def numeric_date(rng, fields):
    """A date all in numbers."""
    year, month, day = fields
    width = rng.choice((1, 2, 2))
    m, d = f"{month:0{width}d}", f"{day:0{width}d}"
    chance = rng.random()
    if chance < 0.08:
        return f"{year:04d}{month:02d}{day:02d}"
    if chance < 0.14:
        gap = rng.choice(("", "", "", " "))
        return f"{year:04d}{gap}年{gap}{m}{gap}月{gap}{d}{gap}日"
    gap = " " if rng.random() < 0.06 else ""
    if chance < 0.5:
        mark = rng.choice("---/.")
        text = f"{gap}{mark}{gap}".join((f"{year:04d}", m, d))
        return text + (some_time(rng) if mark == "-" and rng.random() < 0.3 else "")
    short = some_two_digit_year(rng, year, 0.35)
    mark = rng.choice("//.-")
    parts = (m, d, short) if mark == "/" else (d, m, short)
    return f"{gap}{mark}{gap}".join(parts)


def decorated(rng, text):
    """The text with a weekday's name before or after it, or with loose spaces, now and then."""
    chance = rng.random()
    if chance < 0.12:
        text = some_weekday(rng) + rng.choice((" ", ", ", ", ", ". ", ",")) + text
    elif chance < 0.16:
        text += rng.choice((" ", ", ")) + some_weekday(rng)
    if rng.random() < 0.03:
        text = " " * rng.randint(0, 2) + text + " " * rng.randint(0, 2)
    return text


def date_string(rng, mix):
    """A string written as a date, possible or not."""
    fields = some_fields(rng, mix)
    if rng.random() < mix.named and 1 <= fields[1] <= 12:
        return decorated(rng, named_date(rng, mix, fields))
    return decorated(rng, numeric_date(rng, fields))


def random_letters(rng, low, high):
    """A made-up word."""
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(low, high)))


def some_word(rng):
    """A word that is likely no month's name."""
    chance = rng.random()
    if chance < 0.45:
        return rng.choice(WORDS)
    if chance < 0.60:
        return rng.choice(FOREIGN_MONTHS)
    if chance < 0.75:
        return random_letters(rng, 2, 10)
    month = rng.choice(MONTHS)
    if chance < 0.90:
        return some_typo(rng, some_typo(rng, month))
    if chance < 0.96:
        return month[:rng.randint(2, len(month))] + random_letters(rng, 1, 3)
    return rng.choice(WEEKDAYS + ORDINALS)


def corrupted_date(rng, _mix):
    """A date with one or two characters changed; it may still be a date."""
    text = list(date_string(rng, EITHER))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(text))
        new = rng.choice("0123456789 ./-,'" + string.ascii_lowercase)
        edit = rng.randrange(5)
        if edit == 0:
            text.insert(at, new)
        elif edit == 1:
            text[at] = new
        elif edit == 2 and len(text) > 1:
            del text[at]
        elif edit == 3:
            text.insert(at, text[at])
        elif at:
            text[at - 1], text[at] = text[at], text[at - 1]
    return "".join(text)


def word_for_month(rng, _mix):
    """A date whose month is some other word."""
    word = some_case(rng, some_word(rng))
    return decorated(rng, named_date(rng, EITHER, some_fields(rng, EITHER), word))


def part_of_date(rng, _mix):
    """A date with a part missing, or one part too many."""
    year, month, day = some_fields(rng, EITHER)
    name = some_case(rng, MONTHS[(month - 1) % 12][:rng.choice((3, 9))])
    mark = rng.choice(("-", "/", "."))
    return rng.choice((
        f"{name} {year}", f"{some_day(rng, day)} {name}", f"{name} {some_day(rng, day)}",
        f"{year}", f"{name}", f"{year}{mark}{month:02d}", f"{month}{mark}{year}",
        f"{day}{mark}{month}", f"{day} {month} {year}", f"{year} {month:02d} {day:02d}",
        f"{year} {day} {name}", f"{name} {day} {name} {year}", f"{day} {day} {name} {year}",
        f"{day}{mark}{month}{rng.choice('-/.')}{year}", f"{year}{month:02d}", some_weekday(rng),
        f"{some_weekday(rng)} {some_day(rng, day)}", f"{day} {name} {year} {year}"))


def words_only(rng, _mix):
    """A few words, some of them with a number."""
    if rng.random() < 0.25:
        return some_case(rng, rng.choice(RELATIVE).format(rng.randint(1, 99)))
    words = [some_case(rng, some_word(rng)) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.3:
        words.insert(rng.randrange(len(words) + 1), str(rng.randint(0, 2999)))
    return rng.choice((" ", " ", " ", "-", ", ")).join(words)


def numbers_only(rng, _mix):
    """Numbers that are no date: counts, clock times, addresses, versions."""
    digits = "".join(rng.choices(string.digits, k=rng.randint(1, 14)))
    small = [str(rng.randint(0, 299)) for _ in range(rng.randint(2, 5))]
    return rng.choice((
        digits, f"-{digits}", f"+{digits}", f"${digits}", f"{digits}%", f"#{digits}",
        f"{digits[:3]}.{digits[3:]}", f"v{'.'.join(small[:3])}", ".".join(small), "-".join(small),
        "/".join(small), ":".join(small), " ".join(small), "+".join(small), ",".join(small),
        some_time(rng).strip(), f"({'-'.join(small)})"))


def noise(rng, _mix):
    """Any printable characters, in any script."""
    if rng.random() < 0.3:
        parts = [rng.choice(SCRIPTS + [random_letters(rng, 1, 6), str(rng.randint(0, 2999))])
                 for _ in range(rng.randint(1, 4))]
        return rng.choice(("", " ")).join(parts)
    alphabet = rng.choice((PRINTABLE, string.ascii_letters, string.digits + "-/. ",
                           string.digits + "年月日"))
    return "".join(rng.choices(alphabet, k=rng.randint(1, 24)))


OTHER_NON_DATES = [word_for_month, word_for_month, part_of_date, words_only, words_only,
                   numbers_only, noise]


def some_maker(rng, mix):
    """The function that makes the next string."""
    if rng.random() < mix.dates:
        return date_string
    return corrupted_date if rng.random() < mix.corrupted else rng.choice(OTHER_NON_DATES)


def generate(seed, mix):
    """Yield (input, expected answer) without end, all on the mix's side of the split."""
    rng = random.Random(seed)
    while True:
        make = some_maker(rng, mix)
        while True:
            text = make(rng, mix)
            if rng.random() < mix.line_end:
                text += rng.choice(("\n", "\n", "\r\n"))
            if not text or len(text.encode()) > MAX_INPUT_BYTES:
                continue
            fields = read_fields(text)
            if is_held_out(text, fields) == mix.held_out:
                break
        yield text, answer(fields)


# ---- strings on which date(1) must agree ---------------------------------------------------------


def unambiguous_forms(year, month, day):
    """The ways of writing a date that neither we nor date(1) can misread."""
    name = MONTHS[month - 1].title()
    short = name[:3]
    return [
        f"{year}-{month:02d}-{day:02d}", f"{year}/{month:02d}/{day:02d}",
        f"{year}{month:02d}{day:02d}", f"{day} {short} {year}", f"{day} {name} {year}",
        f"{day:02d} {short} {year}", f"{name} {day}, {year}", f"{short} {day}, {year}",
        f"{short} {day} {year}", f"{day}-{short}-{year}", f"{day:02d}-{short.upper()}-{year}",
        f"{day:02d}{short.upper()}{year}", f"{name.lower()} {day} {year}",
        f"{day} {name.upper()} {year}",
    ]


def unambiguous(count=400, seed=1):
    """Yield (input, expected answer) in those ways, one in nine impossible."""
    rng = random.Random(seed)
    for number in range(count):
        year = rng.randint(1000, 2999) if rng.random() < 0.4 else rng.randint(1950, 2049)
        month = rng.randint(1, 12)
        last = calendar.monthrange(year, month)[1]
        day = rng.randint(1, last)
        if number % 9 == 8:
            day = rng.randint(last + 1, 32)
        forms = unambiguous_forms(year, month, day)
        yield forms[number % len(forms)], answer((year, month, day))


# ---- the command line ----------------------------------------------------------------------------


def print_pairs(pairs):
    """One line INPUT<TAB>EXPECTED for each pair."""
    for text, expected in pairs:
        print(text, expected, sep="\t")


def main():
    """Run one subcommand."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    heldout = commands.add_parser("heldout", help="print strings that training never saw")
    heldout.add_argument("n", type=int)
    heldout.add_argument("seed", type=int)
    commands.add_parser("unambiguous", help="print strings on which date(1) must agree")
    one = commands.add_parser("parse", help="print the reference answer for one string")
    one.add_argument("string")
    args = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)    # so that `| head` ends it quietly
    if args.command == "heldout":
        print_pairs(itertools.islice(generate(args.seed, TEST), args.n))
    elif args.command == "unambiguous":
        print_pairs(unambiguous())
    else:
        print(parse(args.string))


if __name__ == "__main__":
    main()
