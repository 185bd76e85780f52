"""Names of devices for the tests here: "opencl" stands for the first OpenCL device."""
import os
import re
import subprocess
import sys


def list_devices(weft):
    return subprocess.run([weft, '--list-devices'], capture_output=True, text=True, check=True).stdout


def resolve(weft, name):
    if name != 'opencl':
        return name
    found = re.search(r'opencl:\d+\.\d+', list_devices(weft))
    if not found:
        print('skipped: no OpenCL device')
        sys.exit(77)  # meson: skipped
    return found.group()


def build_once(weft, device):
    """Options so that an OpenCL device of a CPU compiles each kernel once, not twice; see tests/support/build_once.h."""
    if not re.search(rf'^{re.escape(device)}\s+CPU', list_devices(weft), re.M) or not device.startswith('opencl'):
        return []
    os.environ['WEFT_CLBUILD'] = 'none'
    os.environ['WEFT_NO_KERNEL_CACHE'] = '1'
    return []
