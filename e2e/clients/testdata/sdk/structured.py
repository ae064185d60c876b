"""Parses its arguments, structured fields of type List (RFC 9651), and prints them as JSON."""

import json
import sys

import http_sf

print(json.dumps([http_sf.parse(field.encode(), tltype="list") for field in sys.argv[1:]]))
