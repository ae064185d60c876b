"""Makes a call with gRPC's C core and a retry policy to an Envoy that denies it, and prints the status
and the whole seconds since 1970 before and after the call, as JSON.

    python3 denied.py HOST:PORT USER
"""

import json
import sys
import time

import grpc

address, user = sys.argv[1:]
retry = {
    "maxAttempts": 5,
    "initialBackoff": "0.001s",
    "maxBackoff": "0.001s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
}
options = [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]}))]
with grpc.insecure_channel(address, options=options) as channel:
    begin = int(time.time())
    try:
        channel.unary_unary("/v1/Call")(b"", metadata=[("x-user", user)], timeout=120)
        result = {"code": "OK"}
    except grpc.RpcError as e:
        result = {"code": e.code().name, "message": e.details()}
    print(json.dumps({**result, "begin": begin, "end": int(time.time())}))
