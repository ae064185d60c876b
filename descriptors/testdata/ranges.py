"""Reads ranges and values of addresses; prints for each value the name of its longest range, or any."""

import ast
import ipaddress
import re
import sys


def network(value):
    """Returns the network that a value names, or None."""
    length = None
    if "/" in value:
        value, _, length = value.rpartition("/")
        if not re.fullmatch(r"0|[1-9][0-9]{0,2}", length, re.ASCII):
            return None
    elif value.startswith("["):
        match = re.fullmatch(r"\[(.*:.*)\]:([0-9]{1,5})", value, re.ASCII | re.DOTALL)
        if not match or int(match[2]) > 65535:
            return None
        value = match[1]
    elif value.count(":") == 1:
        value, _, port = value.partition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or int(port) > 65535:
            return None
    address, percent, zone = value.partition("%")
    if percent and (not re.fullmatch(r"[-.0-9A-Z_a-z~]+", zone) or ":" not in address):
        return None
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    bits = ip.max_prefixlen if length is None else int(length)
    if bits > ip.max_prefixlen:
        return None
    if ip.version == 6 and ip.ipv4_mapped and bits >= 96:
        ip, bits = ip.ipv4_mapped, bits - 96
    return ipaddress.ip_network((ip, bits), strict=False)


ranges = []
for line in sys.stdin:
    kind, _, rest = line.rstrip("\n").partition(" ")
    if kind == "range":
        name, _, text = rest.partition(" ")
        ranges.append((ipaddress.ip_network(text), name))
        continue
    value = network(ast.literal_eval(rest))
    found = [
        (within.prefixlen, name)
        for within, name in ranges
        if value is not None and within.version == value.version and value.subnet_of(within)
    ]
    print(max(found)[1] if found else "any")
