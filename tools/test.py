#!/usr/bin/env python3
"""Runs go test and prints a line for each package, the output of tests that fail, and the counts.

usage: tools/test.py [-- GO-TEST-ARGUMENTS]...

Each -- begins the arguments of one go test; they run side by side. Their packages must be import paths.
All packages are compiled first, because commands that run side by side compile what they share twice.
"""
import collections
import json
import queue
import subprocess
import sys
import threading

MODULE = "github.com/sluice-ratelimit/sluice"


def split(arguments):
    """Returns the arguments of each go test."""
    commands = []
    for argument in arguments:
        if argument == "--":
            commands.append([])
        elif commands:
            commands[-1].append(argument)
        else:
            sys.exit(f"tools/test.py: {argument} comes before the first --\n{__doc__}")
    return commands or sys.exit(__doc__)


def read(process, events):
    """Queues the events of a process, then its exit code."""
    for line in process.stdout:
        try:
            events.put(json.loads(line))
        except ValueError:
            events.put({"Action": "build-output", "Output": line})
    events.put(process.wait())


class Run:
    """The state of the packages and tests of all commands."""

    def __init__(self, total):
        self.total = total
        self.done = 0
        self.counts = collections.Counter()
        self.reasons = collections.Counter()  # why tests were skipped
        self.failed = []
        self.tests = collections.Counter()  # tests by package
        self.output = collections.defaultdict(list)  # by package and test

    def handle(self, event):
        action, package, test = event["Action"], event.get("Package", ""), event.get("Test")
        if action in ("output", "build-output"):
            if action == "build-output":
                print(event["Output"], end="", flush=True)
            self.output[package, test].append(event["Output"])
        elif test is not None:
            self.end_test(action, package, test)
        elif action in ("pass", "fail", "skip"):
            self.end_package(action, package, event.get("Elapsed", 0))

    def end_test(self, action, package, test):
        if action not in ("pass", "fail", "skip"):
            return
        lines = self.output.pop((package, test), [])
        if action == "fail":
            print("".join(lines), end="", flush=True)
        if "/" in test:  # subtests are part of their test
            return
        self.counts[action] += 1
        self.tests[package] += 1
        if action == "skip":
            said = [line.strip() for line in lines if not line.lstrip().startswith(("===", "---"))]
            self.reasons[" ".join(said).split(": ", 1)[-1] or "no reason given"] += 1
        if action == "fail":
            self.failed.append(f"{name(package)}.{test}")

    def end_package(self, action, package, elapsed):
        self.done += 1
        lines = self.output.pop((package, None), [])
        tests = self.tests[package]
        cached = any("(cached)" in line for line in lines)
        if action == "fail":
            # A test that did not end: the process died, or ran out of time.
            for key in [key for key in self.output if key[0] == package]:
                print("".join(self.output.pop(key)), end="")
            print("".join(lines), end="")
            if not any(test.startswith(name(package) + ".") for test in self.failed):
                self.failed.append(name(package))
        word = {"pass": "ok", "fail": "FAIL", "skip": "ok"}[action]
        time = "cached" if cached else f"{elapsed:.1f} s"
        print(f"[{self.done:2} of {self.total}] {word:4} {name(package):32} {tests:4} tests  {time}", flush=True)


def name(package):
    """Returns a package's path without that of the module."""
    return package.replace(MODULE + "/", "")


def main():
    commands = split(sys.argv[1:])
    packages = [argument for command in commands for argument in command if argument.startswith(MODULE)]
    print(f"compiling {len(packages)} packages and what they import", flush=True)
    # go test reports errors.
    null = subprocess.DEVNULL
    subprocess.run(["go", "list", "-e", "-export", "-test", "-deps", *packages], stdout=null, stderr=null)
    run = Run(len(packages))
    events = queue.Queue()
    processes = []
    for command in commands:
        process = subprocess.Popen(["go", "test", "-json", *command], stdout=subprocess.PIPE, text=True, errors="replace")
        processes.append(process)
        threading.Thread(target=read, args=(process, events), daemon=True).start()
    running = len(processes)
    code = 0
    try:
        while running:
            event = events.get()
            if isinstance(event, int):
                running -= 1
                code = code or event
            else:
                run.handle(event)
    except KeyboardInterrupt:  # go test and its tests get the signal too
        for process in processes:
            process.wait()
        sys.exit(130)
    for reason, count in run.reasons.most_common():
        print(f"skipped {count}: {reason}")
    for test in run.failed:
        print(f"FAILED {test}")
    print(f"{run.counts['pass']} passed, {run.counts['fail']} failed, {run.counts['skip']} skipped")
    if code and not run.failed:
        print("FAILED: go test reported an error; see above")
    sys.exit(code)


if __name__ == "__main__":
    main()
