"""An extension that misbehaves in the way its argument says, when it is asked for the status of a sandbox."""
import base64, json, os, signal, sys, time

mode, starts = sys.argv[1], sys.argv[2]
with open(starts, "a") as file:
    file.write(f"{os.getpid()}\n")
first = len(open(starts).readlines()) == 1


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def describe():
    capability = json.loads(sys.argv[3])
    if mode == "boasts":
        capability["pause"] = True
    version = 2 if mode == "newer" else 1
    return {"protocol": version, "id": "ext.rogue", "summary": "", "capability": capability,
            "pricing": "self-hosted", "configuration": {}}


def misbehave(number, params):
    if mode == "crash" and first:
        print("something is very wrong", file=sys.stderr, flush=True)
        os._exit(3)
    if mode == "garbage" and first:
        print("\x1b[31mTraceback of something else", flush=True)
    if mode == "list" and first:
        print("[1, 2]", flush=True)
    if mode == "hang" and first:
        time.sleep(1000)
    if mode == "oversize" and first:
        say({"id": number, "result": "x" * 300_000})
    if mode == "flood" and first:
        for _ in range(400):
            sys.stderr.write("x" * 50_000 + "\n")
    if mode == "stranger" and first:
        say({"id": number + 1000, "result": None})
    if mode == "untyped":
        return say({"id": number, "result": {"alive": "perhaps"}})
    if mode == "refuses":
        return say({"id": number, "error": {"code": "no_space", "message": "the disk\x07 is full", "hint": "make room"}})
    if mode == "odd_code":
        return say({"id": number, "error": {"code": "whatever"}})
    say({"id": number, "result": {"alive": True, "detail": {"env": dict(os.environ), "first": first,
                                                               "credential": params.get("credential")}}})


if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "mute":
    time.sleep(1000)
for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message["method"], message.get("id"), message["params"]
    if method == "describe":
        say({"id": number, "result": describe()})
        if mode == "deaf":
            time.sleep(1000)
    elif method == "ping":
        say({"id": number, "result": None})
    elif method == "status":
        misbehave(number, params)
    elif method == "is_alive":
        # Never answered, though the process is fine.
        pass
    elif method == "list":
        say({"id": number, "result": [{"tag": "production", "alive": True, "parts": []}]})
    elif method == "provision":
        say({"id": number, "event": "progress", "line": "half way"})
        tag = "another" if mode == "swaps" else params["tag"]
        level = "microvm" if mode == "claims" else "network"
        say({"id": number, "result": {"tag": tag, "host": params["host"], "effective": level, "controls": [],
                                      "degraded": False, "data": None}})
    elif method == "exec":
        say({"id": number, "event": "started"})
        say({"id": number, "event": "stdout", "data": base64.b64encode(b"begun\n").decode()})
        if mode == "greedy" and first:
            for _ in range(100):
                say({"id": number, "event": "stdout", "data": base64.b64encode(b"x" * 40_000).decode()})
        if mode == "dies" and first:
            time.sleep(0.2)
            os.kill(os.getpid(), 9)
    elif method == "teardown":
        say({"id": number, "result": {"removed": [params["credential"]] if "credential" in params else [], "left": []}})
while mode == "stubborn":
    time.sleep(1)
