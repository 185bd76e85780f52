"""kernels: each row of the list names a source that is there, and each name of an OpenCL device gives its text."""
import os
import pathlib
import re
import tempfile
import unittest

import cli

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


def opencl():
    return re.search(r"^(opencl:\S+)", cli.weft("--list-devices").text, re.M)


def rows(text):
    """(op, name, tier, layout, class, batch, runs, source) of each line."""
    return [re.match(r"(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +([^;]+)(?:; needs (.+))?$", line).groups() for line in text.splitlines()[1:]]


class Kernels(cli.TestCase):
    def check_list(self, device):
        listed = rows(self.ok("kernels", "--device", device).text)
        self.assertEqual({row[0] for row in listed} & {"gemm", "attention", "rmsnorm"}, {"gemm", "attention", "rmsnorm"})
        self.assertEqual(len({row[:2] for row in listed}), len(listed))
        for row in listed:
            self.assertIn(row[2], ("base", "dot", "simd", "neutral", "matrix"))
            self.assertIn(row[5:7], [(batch, runs) for batch in ("no", "depends") for runs in ("yes", "no")])
            self.assertTrue(os.path.isfile(os.path.join(ROOT, row[7])), row)
        self.assertTrue(any(row[6] == "yes" for row in listed))
        return listed

    def test_cpu(self):
        listed = self.check_list("cpu")
        self.assertTrue(all(row[6] == "yes" for row in listed if not row[8]), "what needs nothing runs")

    def test_candidates(self):
        text = self.ok("kernels", "--shape", "M=4,N=256,K=512", "--type", "Q8_0", "--shape", "B=2,L=100", "--device", "cpu").text
        lines = [line.split() for line in text.splitlines()]
        offered = [line for line in lines if line[0] in ("gemm", "attention")]
        self.assertEqual({line[0] for line in offered}, {"gemm", "attention"})
        self.assertTrue(all(float(line[2]) > 0 for line in offered), text)
        for op in ("gemm", "attention"):
            self.assertEqual([line[3:] for line in offered if line[0] == op][0], ["chosen"], text)
            self.assertEqual(sum("chosen" in line for line in offered if line[0] == op), 1)

    def test_half_precision_prompts(self):
        """With AVX-512 and without AMX, weights of 16 bits are multiplied as they are read, also with many rows."""
        flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
        if "avx512_vnni" not in flags or "amx_bf16" in flags:
            self.skipTest("needs other hardware: AVX-512 without AMX")
        for dtype in ("F16", "BF16"):
            text = self.ok("kernels", "--shape", "M=512,N=256,K=512", "--type", dtype, "--device", "cpu").text
            self.assertEqual(re.findall(r"gemm +(\S+) .*chosen", text), ["rows-avx512"], text)

    def test_chosen_on_request(self):
        """A kernel that is not offered by itself, but that the user's file chooses, is listed and chosen."""
        info = self.ok("info").text
        device = re.search(r"(?m)^(opencl:\S+)\n  name +(.+)\n  platform +(.+)\n(?s:.*?)  compute units +(\d+)\n(?s:.*?)  features +(.*)", info)
        if not device or "CLBlast" not in device[5]:
            self.skipTest("no OpenCL device with CLBlast")
        slug = re.sub("[^a-z0-9]+", "-", f"{device[3]} {device[2]} {device[4]}".lower()).strip("-")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weft", "tuned", slug + ".tune")
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"weft-tuned 1\ndevice {device[2]}\nplatform {device[3]}\nunits {device[4]}\ngemm F32 N=256,K=512 1:clblast\n")
            text = self.ok("kernels", "--shape", "M=4,N=256,K=512", "--type", "F32", "--device", device[1], env={"XDG_CONFIG_HOME": folder}).text
        self.assertEqual(re.findall(r"gemm +(\S+) .*chosen", text), ["clblast"], text)
        self.assertEqual(text.count(" clblast "), 1, text)

    def test_cpu_has_files_only(self):
        r = self.fails(cli.USAGE, "read cpu/ref/rope_kv.c", "kernels", "rope_kv/ref", "--device", "cpu")
        self.assertEqual(r.text, "")

    @unittest.skipUnless(opencl() and "Portable Computing Language" in cli.weft("--list-devices").text, "no PoCL")
    def test_pocl_without_a_cache(self):
        """PoCL then shows no device, and says nothing itself."""
        r = self.fails(cli.DEVICE, "PoCL", "run", "-p", "x", "-n", 1, "--device", "opencl:0.0", env={"POCL_CACHE_DIR": "/dev/null/x"})
        self.assertIn("cannot write to /dev/null/x: Not a directory", r.err)
        self.assertEqual(r.err.count("set POCL_CACHE_DIR"), 1)

    @unittest.skipUnless(opencl(), "no OpenCL device")
    def test_opencl(self):
        device = opencl()[1]
        self.assertIn(self.ok("bench", "-p", 8, "-n", 0, "-r", 1, "--device", "opencl").text.splitlines()[2].split("|")[4].strip(), cli.weft("--list-devices").text)
        listed = self.check_list(device)
        for op, name, *_, source, _ in listed:
            text = self.ok("kernels", f"{op}/{name}", "--device", device).text
            if source.endswith(".cl"):
                self.assertRegex(text, r"\A/\* options: -cl-std=CL1.2 .*-DWG=\d+")
                kernel = os.path.splitext(os.path.basename(source))[0]
                self.assertIn(len(re.findall(rf"^KERNEL (?:\w+ )?void {kernel}\(", text, re.M)), (1, 2), name)  # 2: of F16 and of blocks
            else:
                self.assertRegex(text, r"\A\.version 8\.0\n.target sm_90a")
                self.assertIn("wgmma.mma_async", text)
                self.assertTrue(text.endswith("}\n"))


if os.environ.get("WEFT_HAS_OPENCL") == "0":
    del Kernels.test_opencl, Kernels.test_pocl_without_a_cache, Kernels.test_chosen_on_request  # this build has no OpenCL


if __name__ == "__main__":
    cli.main()
