"""Verifies webhooks with the official package. Lines `whsec_…` on stdin set the secret; one line per request goes out."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

current = None


def say(line):
    print(line, flush=True)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = current.verify(body, dict(self.headers.items()))
            status, line = 204, f"taken {event['id']} {event['type']}"
        except WebhookVerificationError as error:
            status, line = 401, f"refused {error}"
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()
        say(line)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
say(f"port {server.server_port}")
threading.Thread(target=server.serve_forever, daemon=True).start()
for line in sys.stdin:
    current = Webhook(line.strip())
    say("ready")
