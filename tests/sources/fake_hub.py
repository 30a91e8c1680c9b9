"""A server on this machine that answers as the Hugging Face Hub does, and notes every request."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = """
import json, os, sys, warnings
from urllib.request import urlopen
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from advfrontier.errors import FrontierError
from advfrontier.sources import load_data, load_model

source, role, downloads, shape = json.loads(sys.argv[1])
answers = []
for download in downloads:
    try:
        if role == "data":
            answer = load_data(source, download=download).labels.tolist()
        else:
            answer = load_model(source, download=download)(torch.full(shape, 0.3)).tolist()
    except FrontierError as error:
        answer = str(error)
    answers.append(answer)
    urlopen(f"{os.environ['HF_ENDPOINT']}/next").close()
print(json.dumps(answers))
"""


@contextmanager
def serve(root):
    """Serve `root/org/name/FILE` as files of repositories.

    Yield the address and the requests, one list for each load of `load_elsewhere`.
    """
    requests = [[]]

    class Hub(BaseHTTPRequestHandler):
        def answer(self, *, body):
            if self.path == "/next":
                requests.append([])
                self.send_response(200)
                self.end_headers()
                return
            requests[-1].append(self.path)
            repository, _, file = self.path.partition("/resolve/main/")
            path = Path(root, repository.lstrip("/"), file)
            if not file or not path.is_file():
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("X-Repo-Commit", "0" * 40)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def log_message(self, *_):
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def load_elsewhere(source, address, cache, downloads, *, role="model", shape=()):
    """Load a source in a process that takes `address` for the Hub, once for each of `downloads`.

    Return the logits of grey images of this shape, the labels of data, or the messages of errors.
    """
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        environment.pop(name, None)
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM, json.dumps([source, role, downloads, shape])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
