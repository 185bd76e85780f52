#!/usr/bin/env python3
"""The include test must be able to fail: runs it over small trees that are right or wrong."""
import os
import pathlib
import subprocess
import sys
import tempfile

CASES = [  # file, a line, is it right?
    ("src/exec/a.c", '#include "dev/dev.h"', True),
    ("src/exec/a.c", '#include "exec/a.h"', True),
    ("src/dev/a.c", '#include "exec/exec.h"', False),
    ("src/dev/a.c", '#include "select/select.h"', False),
    ("src/select/a.c", '#include "verify/check.h"', False),
    ("src/verify/a.c", '#include "select/select.h"', True),
    ("src/engine/a.c", '#include "cl/cl.h"', False),
    ("src/cli/a.c", "#include <weft/weft.h>", True),
    ("src/cli/a.c", '#include "base/base.h"', True),
    ("src/cli/a.c", '#include "engine/engine.h"', False),
    ("src/cli/a.c", '#include "serve/serve.h"', True),
    ("src/serve/a.c", '#include "cli/cli.h"', False),
    ("src/serve/api/a.c", '#include "serve/http/http.h"', True),
    ("src/serve/http/a.c", '#include "serve/http/http.h"', True),
    ("src/serve/http/a.c", '#include "answers/text.h"', True),
    ("src/serve/http/a.c", '#include "serve/serve.h"', False),
    ("src/serve/http/a.c", '#include "serve/api/internal.h"', False),
    ("src/serve/a.c", '#include "engine/engine.h"', False),
    ("cl/a.c", '#include "dev/dev.h"', True),
    ("cl/ops/a.c", '  #  include "exec/exec.h"', False),
    ("cl/a.c", '#include "select/select.h"', False),
    ("cpu/ref/a.c", '#include "sample/sampler.h"', True),
    ("cpu/a.c", '#include "cl/cl.h"', False),
    ("src/exec/a.c", '#include "a.h"', False),
    ("src/exec/a.c", '#include "../dev/dev.h"', False),
    ("src/exec/a.c", "#include <dev/dev.h>", False),
    ("src/other/a.c", "#include <stdio.h>", False),
    ("src/remote/a.c", "#include <stdio.h>", False),
    ("src/plan/a.c", 'return wf_fail(s, "no such; plan", "write one with --dump-plan");', False),
    ("src/plan/a.c", 'return wf_fail(s, "%s: no plan; weft tune --overlap makes one, `weft kernels --device cpu` lists kernels", p); /* --plan */', True),
    ("src/cli/a.c", 'return wf_fail(s, "write one with --dump-plan");', True),
]

TREES = [  # files of cl or src/dev, is it right?
    ({"src/dev/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "src/dev/b.c": "void wf_b(void)\n{\n    wf_a();\n}\n"}, False),
    ({"src/exec/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "src/exec/b.c": "void wf_b(void)\n{\n    wf_a();\n}\n"}, True),
    ({"cl/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "cl/b.c": "void wf_b(void)\n{\n    /* wf_a(); */\n}\n"}, True),
    ({"cl/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "cl/b.c": "void wf_b(void)\n{\n    wf_a();\n}\n"}, False),
    ({"cl/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "cl/b.c": "void wf_b(void)\n{\n    wf_c();\n}\n",
      "cl/ops/c.c": "static int x;\nconst int *wf_c(\n    int i)\n{\n    return wf_a() ? &x : 0;\n}\n"}, False),
    ({"cl/a.c": '#define X(n) wf_op_##n,\n#include "cl/t.def"\nvoid wf_a(void)\n{\n}\n', "cl/t.def": "X(gemm)\n",
      "cl/g.c": "void wf_op_gemm(void)\n{\n    wf_a();\n}\n"}, False),
    ({"cl/a.c": "void wf_a(void)\n{\n    wf_b();\n}\n", "cl/b_none.c": "void wf_b(void)\n{\n    wf_a();\n}\n"}, True),
]

bad = 0
for files, right in TREES:
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            pathlib.Path(os.path.join(root, path)).write_text(text, encoding="utf-8")
        code = subprocess.run([sys.executable, sys.argv[1], root], stdout=subprocess.DEVNULL).returncode
        if (code == 0) != right:
            print(f"{files}: exit {code}, should be {'0' if right else 'not 0'}")
            bad = 1
for path, line, right in CASES:
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        pathlib.Path(os.path.join(root, path)).write_text(line + "\n", encoding="utf-8")
        code = subprocess.run([sys.executable, sys.argv[1], root], stdout=subprocess.DEVNULL).returncode
        if (code == 0) != right:
            print(f"{path}: {line}: exit {code}, should be {'0' if right else 'not 0'}")
            bad = 1
sys.exit(bad)
