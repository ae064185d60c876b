"""Makes many calls at once over gRPC's C core, and prints what came of them.

    python3 calls.py ADDRESS CALLS FIRST,REQUEST...

For each pair of messages in hexadecimal, one pair after the other over the same
connection: one call with FIRST, and at once so many with REQUEST. A line of JSON for
each pair: how often which overall code, or which error, was the answer.
"""

import collections
import json
import sys

import grpc

address, calls, pairs = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def answer(call):
    try:
        reply = call.result()
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"
    # overall_code is the first field.
    return {b"\x08\x01": "OK", b"\x08\x02": "OVER_LIMIT"}.get(reply[:2], reply.hex())


with grpc.insecure_channel(address) as channel:
    method = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    for pair in pairs:
        first, request = map(bytes.fromhex, pair.split(","))
        begun = [method.future(first, timeout=60)]
        begun += [method.future(request, timeout=60) for _ in range(calls)]
        print(json.dumps(collections.Counter(map(answer, begun))), flush=True)
