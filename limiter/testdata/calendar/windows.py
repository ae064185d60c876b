#!/usr/bin/env python3
"""Prints when windows of the calendar begin and how long they are, for calendar_test.go:

    python3 limiter/testdata/calendar/windows.py > limiter/testdata/calendar/windows.tsv

It knows nothing of sluice: dates are datetime's, zones zoneinfo's. A line is a zone, a unit, the day that months begin
on, the Unix second at which the first window begins, and the seconds that it and those after it last, as COUNTxSECONDS
where several are alike. A window begins at the first second whose local date is its first date or a later one.
"""

import calendar
import datetime
import itertools
import zoneinfo

FIRST, LAST = 2005, 2024
SECOND = datetime.timedelta(seconds=1)
UTC = datetime.timezone.utc

ZONES = """UTC Europe/Berlin Europe/London Europe/Istanbul America/New_York America/Sao_Paulo America/St_Johns America/Havana
America/Asuncion America/Caracas Africa/Cairo Africa/Casablanca Asia/Beirut Asia/Gaza Asia/Tehran Asia/Kathmandu Asia/Pyongyang
Australia/Lord_Howe Pacific/Chatham Pacific/Apia Antarctica/Troll""".split()


def begins(date, zone):
    """Returns the first Unix second in the zone whose date is this one or later."""
    midnight = datetime.datetime(date.year, date.month, date.day, tzinfo=zone)  # the first of two
    at = midnight.astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return int(at.timestamp())
    while (at - SECOND).astimezone(zone).date() >= date:  # it is left out: back to where the clocks go on
        at -= SECOND
    return int(at.timestamp())


def days():
    date = datetime.date(FIRST, 1, 1)
    while date.year <= LAST:
        yield date
        date += datetime.timedelta(days=1)


def weeks():
    return (date for date in days() if date.isoweekday() == 1)


def months(anchor):
    for year, month in itertools.product(range(FIRST, LAST + 1), range(1, 13)):
        yield datetime.date(year, month, min(anchor, calendar.monthrange(year, month)[1]))


def years():
    return (datetime.date(year, 1, 1) for year in range(FIRST, LAST + 1))


def line(name, unit, anchor, dates):
    zone = zoneinfo.ZoneInfo(name)
    starts = sorted(set(begins(date, zone) for date in dates))  # a date that was left out has none
    lengths = (after - before for before, after in itertools.pairwise(starts))
    runs = ((len(list(alike)), length) for length, alike in itertools.groupby(lengths))
    text = " ".join(f"{many}x{length}" if many > 1 else str(length) for many, length in runs)
    print(name, unit, anchor, starts[0], text, sep="\t")


print(f"# zone, unit, first day of months, start, lengths: {FIRST} to {LAST}")
for zone in ZONES:
    line(zone, "day", 1, days())
    line(zone, "week", 1, weeks())
    line(zone, "year", 1, years())
    for anchor in (1, 31) if zone not in ("UTC", "America/Sao_Paulo") else (1, 15, 28, 29, 30, 31):
        line(zone, "month", anchor, months(anchor))
