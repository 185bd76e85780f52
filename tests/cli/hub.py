"""A hub on loopback for test_pull.py: repositories, the list of their files, redirects to another host for the large ones, and every way to misbehave."""
import hashlib
import http.server
import json
import os
import ssl
import threading
import urllib.parse

LARGE = (".gguf", ".safetensors")
STALL = 80  # seconds that a reply stalls at most


def etag_of(content):
    return '"' + hashlib.md5(content).hexdigest() + '"'


class Hub:
    def __init__(self, cert=None, key=None):
        self.repos = {}       # ORG/REPO: {path: bytes}
        self.routes = {}      # path: fn(handler), instead of what would be there
        self.cuts = []        # for each reply with a file: it ends after so many bytes; None: whole
        self.log = []         # (method, path with query, headers)
        self.lie = {}         # path in a repository: fields of its entry in the list
        self.ranges = True    # understands Range
        self.etags = True
        self.length = True    # says how long files are
        self.stall = None     # an event that a reply waits for when it is cut, instead of ending
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.log.append((self.command, self.path, dict(self.headers)))
                path = urllib.parse.unquote(self.path.split("?")[0])
                route = hub.routes.get(path)
                try:
                    route(self) if route else hub.answer(self, path)
                except OSError:
                    self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client):
                pass  # a client that leaves is none

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        scheme = "https" if cert else "http"
        self.url, self.other = f"{scheme}://127.0.0.1:{self.port}", f"{scheme}://localhost:{self.port}"
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        if self.stall:
            self.stall.set()
        self.server.shutdown()
        self.server.server_close()

    # --- replies ---------------------------------------------------------------------------------

    def send(self, h, status, body=b"", **headers):
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def send_file(self, h, content, etag=None):
        etag = etag or etag_of(content)
        asked = h.headers.get("Range") if self.ranges else None
        if asked and h.headers.get("If-Range", etag) == etag:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            if begin >= len(content):
                return self.send(h, 416, Content_Range=f"bytes */{len(content)}")
            h.send_response(206)
            h.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            content = content[begin:]
        else:
            h.send_response(200)
        if self.etags:
            h.send_header("ETag", etag)
        if self.length:
            h.send_header("Content-Length", str(len(content)))
        else:
            h.send_header("Connection", "close")
            h.close_connection = True
        h.end_headers()
        if h.command == "HEAD":
            return
        cut = self.cuts.pop(0) if self.cuts else None
        h.wfile.write(content[:cut])
        if cut is not None:
            h.wfile.flush()
            if self.stall:
                self.stall.wait(STALL)
            h.close_connection = True

    # --- what a hub has -----------------------------------------------------------------------------

    def entry(self, path, content):
        if path.endswith(LARGE):
            sha = hashlib.sha256(content).hexdigest()
            e = {"type": "file", "oid": "0" * 40, "size": len(content), "path": path, "lfs": {"oid": sha, "size": len(content), "pointerSize": 134}}
        else:
            e = {"type": "file", "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(), "size": len(content), "path": path}
        return {**e, **self.lie.get(path, {})}

    def answer(self, h, path):
        words = path.strip("/").split("/")
        if words == ["api", "models"]:
            return self.send(h, 200, json.dumps([{"id": name} for name in self.repos]).encode())
        repo = "/".join(words[2:4] if words[0] == "api" else words[1:3] if words[0] == "cdn" else words[:2])
        files = self.repos.get(repo)
        if files is None:
            return self.send(h, 404, X_Error_Code="RepoNotFound")
        if words[0] == "api":
            folders = sorted({os.path.dirname(p) for p in files} - {""})
            entries = [{"type": "directory", "oid": "1" * 40, "size": 0, "path": p} for p in folders]
            return self.send(h, 200, json.dumps(entries + [self.entry(p, c) for p, c in files.items()]).encode())
        name = "/".join(words[3:] if words[0] == "cdn" else words[4:])
        if name not in files:
            return self.send(h, 404, X_Error_Code="EntryNotFound")
        if words[0] == "cdn" or not name.endswith(LARGE):
            return self.send_file(h, files[name])
        sha = self.entry(name, files[name]).get("lfs", {}).get("oid")
        self.send(h, 302, Location=f"{self.other}/cdn/{repo}/{urllib.parse.quote(name)}?X-Signature=secret", X_Linked_ETag=f'"{sha}"', X_Linked_Size=str(len(files[name])))
