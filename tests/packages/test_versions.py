#!/usr/bin/env python3
"""Semantic versions: meson.build, the header, the Python package, the newest headings of CHANGELOG.md and of debian/changelog agree, and so
does the tag of what is tagged.

    test_versions.py VERSION SOURCES
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCES = os.path.abspath(sys.argv.pop())
VERSION = sys.argv.pop()
NUMBER = r"(?:0|[1-9]\d*)"
SEMVER = rf"{NUMBER}\.{NUMBER}\.{NUMBER}"


def read(*path):
    with open(os.path.join(SOURCES, *path), encoding="utf-8") as f:
        return f.read()


def git(*words):
    done = subprocess.run(["git", "-C", SOURCES, *words], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else None


class Versions(unittest.TestCase):
    def headings(self):
        headings = re.findall(r"(?m)^## (.*)$", read("CHANGELOG.md"))
        for heading in headings:
            self.assertRegex(heading, rf"^{SEMVER}, (?:not released|\d{{4}}-\d\d-\d\d)$")
        self.assertTrue(headings)
        return [heading.split(", ") for heading in headings]

    def test_agree(self):
        self.assertRegex(VERSION, f"^{SEMVER}$")
        self.assertEqual(self.headings()[0][0], VERSION)
        self.assertEqual(re.match(r"weft \((.*?)\) ", read("debian", "changelog")).group(1), VERSION)
        parts = dict(re.findall(r"(?m)^#define WEFT_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", read("include", "weft", "weft.h")))
        self.assertEqual(f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}", VERSION)
        self.assertEqual(re.search(r"(?s)^project\(.*?\bversion: '(.*?)'", read("python", "meson.build"), re.M).group(1), VERSION)

    def test_newer_ones_come_first(self):
        headings = self.headings()
        versions = [tuple(map(int, version.split("."))) for version, _ in headings]
        self.assertEqual(versions, sorted(set(versions), reverse=True))
        self.assertNotIn("not released", [day for _, day in headings[1:]])

    def test_tag(self):
        if not shutil.which("git") or not git("rev-parse", "--verify", "HEAD"):
            return  # an archive has no tags
        for tag in git("tag", "--points-at", "HEAD", "v*"):
            self.assertEqual(tag, f"v{VERSION}")
            self.assertNotEqual(self.headings()[0][1], "not released", "what is tagged is released")


if __name__ == "__main__":
    unittest.main()
