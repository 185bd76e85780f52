"""examples/kubernetes/weft.yaml: its parts name one another, and what it says of the server is so: its command runs, probes answer by names of pods,
and SIGTERM lets requests end in the time that there is."""
import os
import pathlib
import signal
import tempfile
import threading
import unittest

import serve
from serve import Server, cli

try:
    import yaml
except ImportError:
    yaml = None

KEY = {"Authorization": "Bearer a-long-random-key"}


@unittest.skipUnless(yaml, "python3-yaml is missing: ./setup.sh --test installs it")
class Kubernetes(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        parts = list(yaml.safe_load_all(cli.open_text("examples/kubernetes/weft.yaml")))
        cls.of = {(p["kind"], p["metadata"]["name"]): p for p in parts}
        cls.set = cls.of["StatefulSet", "weft"]["spec"]
        cls.pod = cls.set["template"]["spec"]
        cls.container, = cls.pod["containers"]

    def test_parts_name_one_another(self):
        labels = self.set["template"]["metadata"]["labels"]
        self.assertEqual(self.set["selector"]["matchLabels"], labels)
        ports = {p["name"]: p["containerPort"] for p in self.container["ports"]}
        for name in "weft", self.set["serviceName"]:
            service = self.of["Service", name]["spec"]
            self.assertEqual(service["selector"], labels)
            self.assertIn(service["ports"][0]["targetPort"], ports)
        mounted = {m["name"] for m in self.container["volumeMounts"]}
        claims = {c["metadata"]["name"] for c in self.set["volumeClaimTemplates"]}
        self.assertEqual(mounted, {v["name"] for v in self.pod["volumes"]} | claims)
        for v in self.pod["volumes"]:
            if "persistentVolumeClaim" in v:
                self.assertIn(("PersistentVolumeClaim", v["persistentVolumeClaim"]["claimName"]), self.of)
        scaler = self.of["HorizontalPodAutoscaler", "weft"]["spec"]
        target = scaler["scaleTargetRef"]
        self.assertEqual(self.of[target["kind"], target["name"]]["apiVersion"], target["apiVersion"])

    def test_the_server_does_what_it_says(self):
        """With a folder in place of each volume."""
        args, places = self.container["args"], tuple(m["mountPath"] + "/" for m in self.container["volumeMounts"])
        port = args[args.index("--port") + 1]
        self.assertEqual({str(p["containerPort"]) for p in self.container["ports"]}, {port})
        with tempfile.TemporaryDirectory() as root:
            for place in places:
                os.makedirs(root + place)
            args = [root + a if a.startswith(places) else a for a in args]
            pathlib.Path(root, "models", "model.gguf").symlink_to(pathlib.Path(cli.ROOT, "models", "demo.gguf"))
            pathlib.Path(root, "keys", "api-keys").write_text(KEY["Authorization"].split()[1] + "\n", encoding="ascii")
            s = Server(*args[1:], "--port", 0, "--kv-host", "64M", env={e["name"]: root + e["value"] for e in self.container["env"]})
            try:
                self.check(s)
            finally:
                s.p.kill()

    def check(self, s):
        for probe in "startupProbe", "readinessProbe", "livenessProbe":
            self.assertEqual(s.get(self.container[probe]["httpGet"]["path"], Host="10.1.2.3:8080").status, 200)
        self.assertEqual(s.get("/v1/models", **KEY, Host="weft-0.weft-replicas:8080").status, 200)
        self.assertEqual(s.get("/v1/models", Host="weft").status, 401)
        scraped = self.set["template"]["metadata"]["annotations"]["prometheus.io/path"]
        metrics = s.get(scraped, **KEY).body.decode()
        metric = self.of["HorizontalPodAutoscaler", "weft"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
        self.assertIn("\n" + metric.replace("_", ":", 1) + "{", metrics)
        replies = []
        asking = threading.Thread(target=lambda: replies.append(s.post("/v1/completions", {**serve.GOOD, "max_tokens": 400, "ignore_eos": True}, **KEY)))
        asking.start()
        s.wait(lambda: "\nweft:num_requests_running{" in (m := s.get("/metrics", **KEY).body.decode()) and
               any(line.endswith(" 1") for line in m.splitlines() if line.startswith("weft:num_requests_running{")) or replies, "it runs")
        code, log = s.end(signal.SIGTERM)
        asking.join(serve.PATIENCE)
        self.assertEqual((code, replies[0].status), (0, 200), log)

    def test_time_to_end(self):
        args = self.container["args"]
        stop = self.container["lifecycle"]["preStop"]["exec"]["command"]
        together = int(args[args.index("--shutdown-timeout") + 1]) + int(stop[1])
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], together + 10)


if __name__ == "__main__":
    cli.main()
