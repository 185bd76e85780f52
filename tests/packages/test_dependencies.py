#!/usr/bin/env python3
"""Images and packages have what weft needs: packages of the libraries that this build is linked with are in the runtime stages of
packaging/Containerfile, what setup.sh installs to build with is in debian/control, and both builds say of each optional part that it is in.

    test_dependencies.py WEFT SOURCES
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCES = os.path.abspath(sys.argv.pop())
WEFT = os.path.abspath(sys.argv.pop())
BASE = {"libc6", "libgcc-s1", "libstdc++6"}  # of every Debian image
TESTS_ONLY = {"libcmocka-dev"}
OPENCL_ONLY = {"opencl", "clblast"}  # options that the image for CPUs does without


def read(*path):
    with open(os.path.join(SOURCES, *path), encoding="utf-8") as f:
        return f.read()


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def stages():
    """Text of each stage of the Containerfile by its name, with the lines that end in a backslash joined."""
    text = read("packaging", "Containerfile").replace("\\\n", " ")
    return dict(re.findall(r"(?ms)^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", text))


def installed(stage):
    return {word for line in re.findall(r"apt-get install ([^&\n]*)", stage) for word in line.split() if re.match(r"[a-z0-9]", word)}


def library_packages():
    """{soname: package} of what weft itself is linked with."""
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", output("readelf", "-d", WEFT))
    paths = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", WEFT)))
    owners = {name: output("dpkg", "-S", os.path.realpath(paths[name])) for name in needed if name in paths}
    return {name: owner.split(":")[0] for name, owner in owners.items() if owner}


def optional_parts():
    return set(re.findall(r"(?m)^option\('(\w+)', type: 'feature'", read("meson_options.txt")))


def enabled(command):
    return set(re.findall(r"-D(\w+)=enabled", command))


class Dependencies(unittest.TestCase):
    def test_images_have_the_libraries(self):
        if not all(map(shutil.which, ("dpkg", "readelf", "ldd"))):
            self.skipTest("this is no Debian")
        cpu = installed(stages()["runtime"])
        there = BASE | cpu | installed(stages()["opencl"])
        packages = {name: package for name, package in library_packages().items() if not re.match(r"lib[a-z]*san\.", name)}
        self.assertTrue(packages)
        missing = {name: package for name, package in packages.items() if package not in there}
        self.assertEqual(missing, {}, "weft does not start in an image without these: add the packages to packaging/Containerfile")
        opencl = {name for name, package in packages.items() if package not in BASE | cpu}
        self.assertLessEqual(opencl, {"libOpenCL.so.1", "libclblast.so.1"}, "the image for CPUs needs them, too")

    def test_builds_say_what_they_have(self):
        self.assertTrue(optional_parts())
        self.assertEqual(enabled(stages()["build-opencl"]), optional_parts())
        self.assertEqual(enabled(stages()["build-cpu"]), optional_parts() - OPENCL_ONLY)
        self.assertEqual(enabled(read("debian", "rules")), optional_parts())

    def test_packages_build_with_what_setup_installs(self):
        columns = re.findall(r"(?m)^[^|\n#]*\|([^|\n]*)\|[^|\n]*\|[^|\n]*$", read("setup.sh"))  # Debian's
        wanted = {word for column in columns for word in column.split() if word.endswith("-dev")}
        fields = re.search(r"(?ms)^Build-Depends:(.*?)^\S", read("debian", "control")).group(1)
        named = {field.split()[0] for field in fields.split(",")}
        self.assertGreater(len(wanted), 5)
        self.assertLessEqual(wanted - TESTS_ONLY - {"libc6-dev"}, named)


if __name__ == "__main__":
    unittest.main()
