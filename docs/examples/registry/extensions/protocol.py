"""The protocol of docs/extension-sdk.md, version 1: JSON lines on stdin and stdout, one thread per request.

A backend is an object with one method per operation of the contract. A method gets the request's parameters and a
`Request`, returns the result, and raises `Failure` for what went wrong.
"""

import base64
import json
import os
import sys
import threading
import traceback

VERSION = 1
WINDOW = 256 * 1024     # bytes of one stream that may be on their way
CHUNK = 48 * 1024       # bytes of a stream that one line carries


class Failure(Exception):
    """An error with a code of docs/api.md."""

    def __init__(self, code, message, hint=None):
        super().__init__(message)
        self.body = {"code": code, "message": message, **({"hint": hint} if hint else {})}


class Cancelled(Exception):
    """Nobody waits for this request any more."""


class Request:
    """One request that is under way: what goes out, what comes in, and whether anybody still waits."""

    def __init__(self, server, number):
        self.server, self.number = server, number
        self.change = threading.Condition()
        self.granted = {"stdout": WINDOW, "stderr": WINDOW, "data": WINDOW}
        self.pieces, self.ended, self.cancelled = [], False, False
        self.on_cancel = None

    def event(self, event, **more):
        self.server.send({"id": self.number, "event": event, **more})

    def write(self, stream, data):
        """Sends bytes, no faster than they are taken."""
        for start in range(0, len(data), CHUNK):
            piece = bytes(data[start:start + CHUNK])
            with self.change:
                self.change.wait_for(lambda: self.cancelled or self.granted[stream] >= len(piece))
                if self.cancelled:
                    raise Cancelled()
                self.granted[stream] -= len(piece)
            self.event(stream, data=base64.b64encode(piece).decode())

    def read(self):
        """The next piece of input; empty at its end."""
        with self.change:
            self.change.wait_for(lambda: self.cancelled or self.pieces or self.ended)
            if self.cancelled:
                raise Cancelled()
            if not self.pieces:
                return b""
            piece = self.pieces.pop(0)
        self.event("more", bytes=len(piece))
        return piece

    def hear(self, method, params):
        """A message about this request."""
        with self.change:
            if method == "more":
                self.granted[params["stream"]] += params["bytes"]
            elif method == "input" and params.get("eof"):
                self.ended = True
            elif method == "input":
                self.pieces.append(base64.b64decode(params["data"]))
            elif method == "cancel":
                self.cancelled = True
            self.change.notify_all()
        if method == "cancel" and self.on_cancel:
            self.on_cancel()


class Server:
    def __init__(self, backend):
        self.backend, self.lock, self.requests = backend, threading.Lock(), {}

    def send(self, message):
        line = json.dumps(message, separators=(",", ":")) + "\n"
        with self.lock:
            sys.stdout.write(line)
            sys.stdout.flush()

    def serve(self):
        for line in sys.stdin:
            message = json.loads(line)
            method, params = message["method"], message.get("params") or {}
            if "id" in message:
                request = Request(self, message["id"])
                self.requests[request.number] = request
                threading.Thread(target=self.run, args=(request, method, params), daemon=True).start()
            elif params.get("request") in self.requests:
                self.requests[params["request"]].hear(method, params)
        # The end of our input is the end of whoever needs us: commands end, and work that is half done is found by its tag.
        for request in list(self.requests.values()):
            request.hear("cancel", {})
        os._exit(0)

    def run(self, request, method, params):
        try:
            operation = None if method.startswith("_") else getattr(self.backend, method, None)
            if operation is None:
                raise Failure("unsupported", f"there is no {method} here")
            answer = {"result": operation(request, **params)}
        except Failure as failure:
            answer = {"error": failure.body}
        except Cancelled:
            answer = {"error": {"code": "cancelled", "message": "the request was cancelled"}}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            answer = {"error": {"code": "backend_failed", "message": f"{type(error).__name__}: {error}"}}
        self.requests.pop(request.number, None)
        self.send({"id": request.number, **answer})
