"""Makes calls with gRPC's C core. Input and output are described in client_test.go.

    python3 calls.py HOST:PORT [FILE]
"""

import collections
import sys

import grpc

address, *authority = sys.argv[1:]


def answer(call):
    try:
        reply = call.result()
    except grpc.FutureCancelledError:
        return "CANCELLED"
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"
    # overall_code is the first field.
    return {b"\x08\x01": "OK", b"\x08\x02": "OVER_LIMIT"}.get(reply[:2], reply.hex())


def main(channel):
    method = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    for line in sys.stdin:
        calls, timeout, header, cancel, first, request = line.split()
        metadata = [("x-large", "m" * int(header))] if int(header) else []

        def begin(message):
            return method.future(bytes.fromhex(message), timeout=int(timeout) / 1000, metadata=metadata)

        begun = [begin(first)] if first != "-" else []
        begun += [begin(request) for _ in range(int(calls))]
        if cancel == "1":
            print("begun", flush=True)
            sys.stdin.readline()
            for call in begun:
                call.cancel()
        for text, n in collections.Counter(map(answer, begun)).items():
            print(n, text)
        print(flush=True)


if authority:
    with open(authority[0], "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(address, credentials) as channel:
        main(channel)
else:
    with grpc.insecure_channel(address) as channel:
        main(channel)
