"""Counts requests of an access log by address and minute, for comparison with sluice simulate.

    python3 count.py KIND LIMIT < LOG

It parses each kind of log with its own regular expression or fields and shares nothing with sluice.
It prints the denials of a limit of LIMIT requests per minute for each address.
"""

import collections
import datetime
import gzip
import json
import re
import sys

CLF = "%d/%b/%Y:%H:%M:%S %z"
COMBINED = r'(?P<a>\S+) - .*? \[(?P<t>[^\]]+)\] "(?:[^"\\]|\\.)*" (?:\d+|-) (?:\d+|-)'


def iso(text):
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    return datetime.datetime.fromisoformat(text)


def clf(text):
    return datetime.datetime.strptime(text, CLF)


def by(pattern, time):
    pattern = re.compile(pattern)

    def read(line):
        m = pattern.search(line)
        return m and (m["a"], time(m["t"]))

    return read


def nginx(line):
    o = json.loads(line)
    return o["remote_addr"], clf(o["time_local"]) if "time_local" in o else iso(o["time_iso8601"])


def cri(line):
    m = re.match(r"\S+ std\w+ F (\{.*\})$", line)
    if not m:
        return None
    o = json.loads(m[1])
    return o["downstream_remote_address"].rsplit(":", 1)[0].strip("[]"), iso(o["start_time"])


KINDS = {
    "common": by("^" + COMBINED, clf),
    "combined": by("^" + COMBINED + r' "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"', clf),
    "nginx-json": nginx,
    "cri": cri,
}


def main(kind, limit):
    count = collections.Counter()
    data = sys.stdin.buffer.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        found = line and KINDS[kind](line.rstrip("\r"))
        if found:
            address, time = found
            count[address, int(time.timestamp()) // 60] += 1
    hits, over = collections.Counter(), collections.Counter()
    for (address, _), n in count.items():
        hits[address] += n
        over[address] += max(0, n - limit)
    print(json.dumps({"requests": sum(hits.values()), "denied": sum(over.values()), "hits": hits, "over": {a: n for a, n in over.items() if n}}))


main(sys.argv[1], int(sys.argv[2]))
