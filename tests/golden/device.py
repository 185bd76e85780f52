"""Names of devices for the tests here: "opencl" stands for the first OpenCL device."""
import re
import subprocess
import sys


def resolve(weft, name):
    if name != 'opencl':
        return name
    listed = subprocess.run([weft, '--list-devices'], capture_output=True, text=True, check=True).stdout
    found = re.search(r'opencl:\d+\.\d+', listed)
    if not found:
        print('skipped: no OpenCL device')
        sys.exit(77)  # meson: skipped
    return found.group()
