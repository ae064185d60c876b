"""Sends a request with a vendor's client to an Envoy that denies it, and prints what the client
raised and how long it slept between its attempts, as JSON.

Arguments: openai or anthropic, and the URL of Envoy."""

import json
import sys
import time

vendor, url = sys.argv[1:]
slept = []
time.sleep = slept.append

if vendor == "openai":
    import openai as sdk

    client = sdk.OpenAI(base_url=url, api_key="key", max_retries=1)

    def call():
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
else:
    import anthropic as sdk

    client = sdk.Anthropic(base_url=url, api_key="key", max_retries=1)

    def call():
        client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hello"}])

try:
    call()
    raised = {"error": "none"}
except sdk.APIStatusError as e:
    body = e.body or {}
    raised = {
        "error": type(e).__name__,
        "status": e.status_code,
        "code": getattr(e, "code", None) or body.get("error", {}).get("type"),
        "message": body.get("message") or body.get("error", {}).get("message"),
        "retry_after": e.response.headers.get("retry-after"),
    }
print(json.dumps({**raised, "slept": slept}))
