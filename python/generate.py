"""Makes the C source of the extension module weft._weft out of weft's own header: no declaration is written a second time.

    generate.py PREPROCESSED-HEADER HOOKS PARAMS OUTPUT KEYWORDS

PARAMS is weft/_params.py, which knows which fields of a struct are keyword arguments; KEYWORDS becomes a stub with their types, for type checkers alone.
"""
import importlib.util
import re
import sys
import types

import cffi

# Functions of native/hooks.c, and what it calls in Python.
HOOKS = """
void open_log(void);
void close_log(void);
void leave_threads(void);
bool in_log(void);
extern "Python" void python_log(int level, const char *line);
extern "Python" bool python_stop(void *user);
extern "Python" void python_progress(void *user, const char *what, double fraction);
"""


def macro(name, value):
    """A macro as cffi declares it: numbers and texts only, whose values the compiler fills in."""
    if value.startswith('"'):
        return f'static const char *const {name};'
    return f'#define {name} ...' if re.match(r'[\d(]', value) else ''


def declarations(preprocessed):
    """What the header declares, in the part of C that cffi reads."""
    text = preprocessed.split('weft_declarations_begin', 1)[1]
    text = re.sub(r'__attribute__\s*\(\(visibility\("default"\)\)\)', '', text)
    text = re.sub(r'^#define (\w+)(?:[ \t]+(.*))?$', lambda m: macro(m[1], m[2] or ''), text, flags=re.M)
    return re.sub(r'^#(?!define \w+ \.\.\.).*$', '', text, flags=re.M)


# What keyword arguments of which name are of; without fields that have an argument of their own.
KEYWORDS = (('ModelParams', 'weft_model_params', {'path'}), ('EngineParams', 'weft_engine_params', set()),
            ('RequestParams', 'weft_request_params', {'prompt'}), ('ChatParams', 'weft_chat_params', {'messages', 'tools'}))
ITEMS = {'pointer': 'Union[Text, Sequence[Text]]', 'struct': 'Union[Mapping[int, float], Sequence[Tuple[int, float]]]', 'primitive': 'Sequence[int]'}


def annotation(field):
    """The type of a keyword argument."""
    if field.kind == 'list':
        return ITEMS[field.type.item.kind]
    number = {'_Bool': 'bool', 'float': 'float', 'double': 'float'}.get(field.type.cname, 'int')
    return {'text': 'Union[Text, os.PathLike[str]]', 'json': 'Any'}.get(field.kind, number)


def keywords(ffi, params):
    """Typed dictionaries of the keyword arguments."""
    sys.modules['weft'], sys.modules['weft._weft'] = types.ModuleType('weft'), types.SimpleNamespace(ffi=ffi)
    spec = importlib.util.spec_from_file_location('weft._params', params)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = 'import os\nfrom typing import Any, Mapping, Optional, Sequence, Tuple, TypedDict, Union\n\nText = Union[str, bytes, bytearray, memoryview]\n'
    for name, struct, without in KEYWORDS:
        fields = module.fields_of(f'struct {struct}')
        lines = ''.join(f'    {key}: Optional[{annotation(field)}]\n' for key, field in fields.items() if key not in without)
        text += f'\nclass {name}(TypedDict, total=False):\n{lines}'
    return text + '\nclass ChatRequestParams(RequestParams, ChatParams, total=False): ...\n'


def main(header, hooks, params, output, stub):
    ffi = cffi.FFI()
    with open(header, encoding='utf-8') as f:
        ffi.cdef(declarations(f.read()))
    ffi.cdef(HOOKS)
    with open(hooks, encoding='utf-8') as f:
        ffi.set_source('weft._weft', f.read())
    ffi.emit_c_code(output)
    with open(stub, 'w', encoding='utf-8') as f:
        f.write(keywords(ffi, params))


main(*sys.argv[1:])
