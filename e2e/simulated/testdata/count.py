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
HAPROXY = r"(?P<a>\S+):\d+ \[(?P<t>[^\]]+)\] \S+ \S+ [-+\d/]+ (?P<s>-?\d+) "


def utc(text, layout):
    return datetime.datetime.strptime(text, layout).replace(tzinfo=datetime.timezone.utc)


def iso(text):
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    return datetime.datetime.fromisoformat(text)


def at(seconds):
    return datetime.datetime.fromtimestamp(float(seconds), datetime.timezone.utc)


def clf(text):
    return datetime.datetime.strptime(text, CLF)


def by(pattern, time):
    pattern = re.compile(pattern)

    def read(line):
        m = pattern.search(line)
        return m and (m["a"], time(m["t"]))

    return read


def caddy(line):
    if not line.startswith("{"):
        return None
    o = json.loads(line)
    r = o.get("request")
    return r and (r.get("client_ip") or r["remote_ip"], at(o["ts"]))


def traefik(line):
    if not line.startswith("{"):
        return None
    o = json.loads(line)
    return o.get("ClientHost") and (o["ClientHost"], iso(o["StartUTC"]))


def nginx(line):
    o = json.loads(line)
    return o["remote_addr"], clf(o["time_local"]) if "time_local" in o else iso(o["time_iso8601"])


def w3c(separator):
    names = []

    def read(line):
        if line.startswith("#Fields:"):
            names[:] = line.split()[1:]
        if line.startswith("#"):
            return None
        o = dict(zip(names, line.split(separator)))
        return o["c-ip"], utc(o["date"] + o["time"], "%Y-%m-%d%H:%M:%S")

    return read


def cri(line):
    m = re.match(r"\S+ std\w+ F (\{.*\})$", line)
    if not m:
        return None
    o = json.loads(m[1])
    return o["downstream_remote_address"].rsplit(":", 1)[0].strip("[]"), iso(o["start_time"])


def docker(line):
    return KINDS["combined"](json.loads(line)["log"])


def fields(address, time, read_time):
    """Reads JSON lines: address and time are the paths of their fields."""

    def find(o, way):
        for key in [way] if way in o else way.split("."):
            o = o[key]
        return o

    def read(line):
        o = json.loads(line)
        return find(o, address), read_time(find(o, time))

    return read


def ltsv(line):
    o = dict(cell.split(":", 1) for cell in line.split("\t"))
    return o["host"], clf(o["time"].strip("[]"))


def iis_own(line):
    if line.startswith("#"):
        return None
    parts = [part.strip() for part in line.split(",")]
    return parts[0], utc(parts[2] + " " + parts[3], "%m/%d/%y %H:%M:%S")


def w3c_quoted(line):
    if line.startswith("#"):
        return None
    time, address, date = line.split("\t")[:3]
    return address, utc(date + time, "%Y-%m-%d%H:%M:%S")


def iis_date():
    day = []

    def read(line):
        if line.startswith("#Date:"):
            day[:] = [line.split()[1]]
        if line.startswith("#"):
            return None
        time, address = line.split(" ")[:2]
        return address, utc(day[0] + time, "%Y-%m-%d%H:%M:%S")

    return read


def zeek(line):
    if line.startswith("#"):
        return None
    parts = line.split("\t")
    return parts[2], at(parts[0])


def elb(line):
    parts = line.split(" ")
    return parts[2].rsplit(":", 1)[0], iso(parts[0])


ALB = r'^(?:https?|h2|wss?|grpcs?) \S+ \S+ (?P<a>\S+):\d+ .* (?P<t>\d{4}-\S+T\S+Z) "[^"]*" "[^"]*" "[^"]*"'
KINDS = {
    "common": by("^" + COMBINED, clf),
    "combined": by("^" + COMBINED + r' "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"', clf),
    "nginx": by("^" + COMBINED, clf),
    "ingress-nginx": by("^" + COMBINED, clf),
    "nginx-json": nginx,
    "caddy": caddy,
    "traefik": by("^" + COMBINED, clf),
    "traefik-json": traefik,
    "haproxy": by("^" + HAPROXY, lambda t: utc(t, "%d/%b/%Y:%H:%M:%S.%f")),
    "haproxy-syslog": by(r"haproxy\[\d+\]: " + HAPROXY, lambda t: utc(t, "%d/%b/%Y:%H:%M:%S.%f")),
    "nginx-syslog": by(r"nginx\[\d+\]: " + COMBINED, clf),
    "alb": by(ALB, iso),
    "cloudfront": w3c("\t"),
    "iis": w3c(" "),
    "cri": cri,
    "docker": docker,
    "squid": by(r"^(?P<t>\d+\.\d+) +\d+ (?P<a>\S+) ", at),
    "caddy-console": by(r'^(?P<t>\S+ \S+)\t.*"client_ip":"(?P<a>[^"]+)"', lambda t: utc(t, "%Y/%m/%d %H:%M:%S.%f")),
    "ltsv": ltsv,
    "ovh": by(r"^(?P<a>\S+) \S+ - \[(?P<t>[^\]]+)\]", clf),
    "gandi": by(r"^\S+ (?P<a>\S+) - .*? \[(?P<t>[^\]]+)\] \(", clf),
    "zoraxy": by(r"\[(?P<t>[^\]]+)\] .*\[client: (?P<a>[^\]]+)\]", lambda t: utc(t, "%Y-%m-%d %H:%M:%S.%f")),
    "npmplus": by(r"^\[(?P<t>[^\]]+)\] \S+ (?P<a>\S+) ", clf),
    "zeek": zeek,
    "zeek-json": fields("id.orig_h", "ts", at),
    "iis-date": iis_date(),
    "s3": by(r"^\S+ \S+ \[(?P<t>[^\]]+)\] (?P<a>\S+) ", clf),
    "iis-own": iis_own,
    "apisix": by(r"^(?P<a>\S+) - - \[(?P<t>[^\]]+)\]", clf),
    "elb": elb,
    "kong": fields("client_ip", "started_at", lambda t: at(t / 1000)),
    "cloudflare": fields("ClientIP", "EdgeStartTimestamp", lambda t: at(t // 1_000_000_000)),
    "gcp": fields("httpRequest.remoteIp", "timestamp", iso),
    "frontdoor": fields("properties.clientIp", "time", iso),
    "fastly": fields("client_ip", "timestamp", lambda t: datetime.datetime.strptime(t, "%Y-%m-%dT%H:%M:%S%z")),
    "pino": fields("req.remoteAddress", "time", lambda t: at(t / 1000)),
    "w3c-quoted": w3c_quoted,
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
