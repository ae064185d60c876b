#!/usr/bin/env python3
"""Holds the rules that sluice makes of Envoy Gateway's objects against the files that Envoy Gateway tests itself with.

    theirs.py CLONE REVISION SLUICE

CLONE is a clone of github.com/envoyproxy/gateway, SLUICE the command. What is read there is others', and is not to be
committed. Three comparisons, each of which says how many files agree:

  1. the intermediate form (IR) to rules: this script against ratelimit-config/*.yaml of Envoy Gateway
  2. policies to rules: sluice against the IR that Envoy Gateway's tests expect, taken to rules as in 1
  3. names and hosts of all routes: the objects of each test without policies get one policy for each Gateway, and sluice
     must give a rule for each route of the expected IR, and no other
"""

import json
import subprocess
import sys

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
clone, revision, sluice = sys.argv[1:]
KINDS = {
    "gateways": "Gateway", "httpRoutes": "HTTPRoute", "grpcRoutes": "GRPCRoute", "namespaces": "Namespace",
    "backendTrafficPolicies": "BackendTrafficPolicy", "listenerSets": "ListenerSet",
}


def git(*args):
    return subprocess.run(["git", "-C", clone, *args], check=True, capture_output=True, text=True).stdout


def files(folder, ending):
    return [f for f in git("ls-tree", "--name-only", revision, folder + "/").split() if f.endswith(ending)]


def load(path):
    return list(yaml.load_all(git("show", f"{revision}:{path}"), Loader))


def of_ir(listeners):
    """The rules of an IR: {(domain, path of entries): limit}."""
    found = {}
    for listener in listeners:
        for route in listener.get("routes") or []:
            limits = ((route.get("traffic") or {}).get("rateLimit") or {}).get("global") or {}
            counts = {True: 0, False: 0}
            for rule in limits.get("rules") or []:
                shared = bool(rule.get("shared"))
                number = counts[shared]
                counts[shared] += 1
                domain, key = listener["name"], route["name"]
                if shared:
                    key = rule["name"]
                    domain = key.rsplit("/rule/", 1)[0] if "/rule/" in key else key.replace("/", "-", 1)
                chain = [f"{key}={key}"]
                headers = rule.get("headerMatches") or []
                queries = rule.get("queryParamMatches") or []
                for i, match in enumerate(headers + [None] + queries):
                    if match is None:
                        for word in ["method"] * bool(rule.get("methodMatches")) + ["path"] * bool(rule.get("pathMatch")):
                            chain.append(f"rule-{number}-{word}=rule-{number}-{word}")
                        if cidr := rule.get("cidrMatch"):
                            chain.append("masked_remote_address=" + "invert:" * bool(cidr.get("invert")) + cidr["cidr"])
                            chain += ["remote_address"] * bool(cidr.get("distinct"))
                        continue
                    name = f"rule-{number}-match-{i - (i > len(headers))}"
                    chain.append(name if match.get("distinct") else f"{name}={name}")
                if len(chain) == 1:
                    chain.append(f"rule-{number}-match--1=rule-{number}-match--1")
                limit = f"{rule['limit']['requests']}/{rule['limit']['unit'].lower()}" + " shadow" * bool(rule.get("shadowMode"))
                found.setdefault((domain, " > ".join(chain)), limit)
    return found


def of_theirs(documents):
    """The same of a configuration of the rate limit service."""
    found = {}

    def walk(domain, above, descriptors):
        for d in descriptors or []:
            path = above + [d["key"] + (f"={d['value']}" if d["value"] else "")]
            if limit := d["rate_limit"]:
                found[domain, " > ".join(path)] = f"{limit['requests_per_unit']}/{limit['unit'].lower()}" + " shadow" * d["shadow_mode"]
            walk(domain, path, d["descriptors"])

    for document in documents:
        if document:
            walk(document["domain"], [], document["descriptors"])
    return found


def of_sluice(objects):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    ran = subprocess.run([sluice, "check", "-o", "json", "-"], input=text, capture_output=True, text=True)
    said = json.loads(ran.stdout)
    found = {}
    for limit in said["limits"] or []:
        found[limit["domain"], limit["rule"]] = limit["limit"]
    return found, [d["severity"] + ": " + d["message"] for d in said["diagnostics"]]


def objects(document):
    found = []
    for key, kind in KINDS.items():
        for o in document.get(key) or []:
            version = {"Namespace": "v1", "BackendTrafficPolicy": "gateway.envoyproxy.io/v1alpha1"}.get(kind, "gateway.networking.k8s.io/v1")
            o["apiVersion"], o["kind"] = version, kind
            if kind == "HTTPRoute":  # Kubernetes adds a match where there is none; their tests do not
                for rule in o["spec"].get("rules") or []:
                    rule["matches"] = rule.get("matches") or []
                o["spec"].setdefault("rules", [])
            for key in ("metadata",):
                o[key].pop("creationTimestamp", None)
            found.append(o)
    # Their translator has these two namespaces, in which most tests are.
    named = {o["metadata"]["name"] for o in found if o["kind"] == "Namespace"}
    return found + [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in {"default", "envoy-gateway"} - named]


def listeners(document):
    return [l for ir in (document.get("xdsIR") or {}).values() for l in (ir or {}).get("http") or []]


def why(given, expected):
    """Why sluice's rules may be others: it takes objects for valid, and leaves some kinds out, of which it warns."""
    text = json.dumps(given, default=str)
    if '"ListenerSet"' in text or any((f.get("spec") or {}).get("matches") for f in given.get("httpFilters") or []):
        return "a kind that sluice leaves out"
    if len({g["spec"]["gatewayClassName"] for g in given["gateways"]}) > 1:
        return "a Gateway of another class"
    for key in ("gateways", "httpRoutes", "grpcRoutes"):
        for o in expected.get(key) or []:
            status = o.get("status") or {}
            for part in (status.get("listeners") or []) + (status.get("parents") or []):
                for c in part.get("conditions") or []:
                    if c["status"] == ("True" if c["type"] in ("Conflicted", "PartiallyInvalid") else "False"):
                        return f"{key} that are not valid: {c['message']}"
    return ""


def compare(what, path, got, want, said=(), reason=""):
    if got == want:
        return True
    if reason:
        print(f"{what} {path}: differs, as it may: {reason}")
        return None
    print(f"{what} {path}: differs")
    for key in sorted(got.keys() | want.keys()):
        if got.get(key) != want.get(key):
            print(f"    {key}: got {got.get(key)}, want {want.get(key)}")
    for line in said:
        print("    " + line)
    return False


def main():
    agree = {1: 0, 2: 0, 3: 0}
    of = {1: 0, 2: 0, 3: 0}
    rules = {2: 0, 3: 0}
    aside = 0
    tests = "internal/xds/translator/testdata"
    outs = set(files(f"{tests}/out/ratelimit-config", ".yaml"))
    for path in files(f"{tests}/in/ratelimit-config", ".yaml"):
        out = path.replace("/in/", "/out/")
        if out in outs:
            of[1] += 1
            agree[1] += compare(1, path, of_ir(load(path)[0].get("http") or load(path)), of_theirs(load(out)))
    for path in files("internal/gatewayapi/testdata", ".in.yaml"):
        given = load(path)[0]
        expected = load(path.replace(".in.yaml", ".out.yaml"))[0]
        policies = given.get("backendTrafficPolicies") or []
        if any((p["spec"].get("rateLimit") or {}).get("global") for p in policies):
            number, want = 2, {k: v.removesuffix(" shadow") for k, v in of_ir(listeners(expected)).items()}  # check does not say it
        elif not policies and given.get("gateways") and (given.get("httpRoutes") or given.get("grpcRoutes")):
            number, want = 3, {}
            for g in given["gateways"]:
                given.setdefault("backendTrafficPolicies", []).append({
                    "metadata": {"name": "all-" + g["metadata"]["name"], "namespace": g["metadata"]["namespace"]},
                    "spec": {
                        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": g["metadata"]["name"]}],
                        "rateLimit": {"global": {"rules": [{"limit": {"requests": 1, "unit": "Hour"}}]}},
                    },
                })
            for l in listeners(expected):
                for r in l.get("routes") or []:
                    if r["name"].startswith(("httproute/", "grpcroute/")):
                        want[l["name"], f"{r['name']}={r['name']} > rule-0-match--1=rule-0-match--1"] = "1/hour"
        else:
            continue
        got, said = of_sluice(objects(given))
        of[number] += 1
        rules[number] += len(want)
        same = compare(number, path, got, want, said, why(given, expected))
        aside += same is None
        agree[number] += same or False
    print(f"{revision}: 1: {agree[1]} of {of[1]} agree; 2: {agree[2]} of {of[2]}, {rules[2]} rules; "
          f"3: {agree[3]} of {of[3]}, {rules[3]} routes; {aside} set aside with a reason")
    sys.exit(sum(agree.values()) + aside < sum(of.values()))


main()
