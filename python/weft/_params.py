"""Structs of parameters from keyword arguments. Which there are, and of which type, is what the header declares."""
import difflib
import functools
import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from ._weft import ffi

OURS = {'reserved', 'pull'}  # never set by a caller


class Field(NamedTuple):
    """Where the value of a keyword argument goes."""

    name: str          # in the struct
    inside: str        # the struct within the struct that has it, such as "sampling"; ""
    kind: str          # how it is given: "text", "json", "list" or "value"
    type: Any
    length: str        # the field with its length; ""


def kind_of(name: str, field: Any, fields: Mapping[str, Any]) -> str:
    """How a field is given, or "" if not by a caller: functions, structs of their own, lengths of other fields."""
    kind = field.type.kind
    if name in OURS or name[2:] in fields and name.startswith('n_') or name.endswith('_len') and name[:-4] in fields:
        return ''
    if kind != 'pointer':
        return 'value' if kind in ('primitive', 'enum') else ''
    if f'n_{name}' in fields:
        return 'list'
    if field.type.item.cname == 'char':
        return 'json' if name.endswith('_json') else 'text'
    return ''


@functools.lru_cache(maxsize=None)
def fields_of(struct: str, inside: str = '') -> Dict[str, Field]:
    """The keyword arguments of a struct. Those of a struct within it are among them, and `x_json` is given as the value x."""
    fields = dict(ffi.typeof(struct).fields)
    found: Dict[str, Field] = {}
    for name, field in fields.items():
        kind = kind_of(name, field, fields)
        if field.type.kind == 'struct':
            found.update(fields_of(field.type.cname, name))
        elif kind:
            length = f'n_{name}' if kind == 'list' else f'{name}_len' if f'{name}_len' in fields else ''
            found[name[:-5] if kind == 'json' else name] = Field(name, inside, kind, field.type, length)
    return found


def is_text(value: Any) -> bool:
    """Whether a value is one text: a view of larger items than bytes is a list of numbers, as an array of them is."""
    return isinstance(value, (str, bytes, bytearray)) or isinstance(value, memoryview) and value.itemsize == 1


def encoded(value: Any) -> bytes:
    """A text, in UTF-8; a path as the system has it; bytes as they are."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, os.PathLike):
        return os.fsencode(value)
    if is_text(value):
        return bytes(value)
    raise TypeError(f'a text is expected, not {type(value).__name__}')


class Params:
    """A struct of parameters, and the memory that it points to."""

    def __init__(self, struct: str, values: Mapping[str, Any]) -> None:
        self.pointer = ffi.new(f'{struct} *')
        self._memory: List[Any] = []
        fields = fields_of(struct)
        for name, value in values.items():
            if name not in fields:
                raise TypeError(unknown(name, fields))
            if value is not None:
                self._set(name, fields[name], value)

    def _set(self, name: str, field: Field, value: Any) -> None:
        struct = getattr(self.pointer, field.inside) if field.inside else self.pointer
        try:
            length, content = getattr(self, f'_{field.kind}')(field, value)
            if field.length:
                setattr(struct, field.length, length)
            setattr(struct, field.name, content)
        except (OverflowError, TypeError, ValueError) as e:
            raise (ValueError if isinstance(e, ValueError) else type(e))(f'{name}: {e}') from None

    def _value(self, field: Field, value: Any) -> Tuple[int, Any]:
        return 0, value

    def _kept(self, declaration: str, content: Any) -> Any:
        self._memory.append(ffi.new(declaration, content))
        return self._memory[-1]

    def _text(self, field: Field, value: Any) -> Tuple[int, Any]:
        content = encoded(value)
        if not field.length and b'\0' in content:
            raise ValueError('a zero byte cannot be in it')
        return len(content), self._kept('char[]', content)

    def _json(self, field: Field, value: Any) -> Tuple[int, Any]:
        return 0, self._kept('char[]', json.dumps(value, ensure_ascii=False).encode())

    def _list(self, field: Field, value: Any) -> Tuple[int, Any]:
        items = [value] if is_text(value) else list(value.items() if isinstance(value, Mapping) else value)
        if field.type.item.kind == 'pointer':
            items = [self._text(field._replace(length=''), item)[1] for item in items]
        return len(items), self._kept(f'{item_name(field.type)}[]', items)


def item_name(pointer: Any) -> str:
    """The type that a pointer points to, as ffi.new takes it."""
    return str(ffi.getctype(pointer.item))


def unknown(name: str, fields: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, fields, 1)
    return f"unknown keyword argument '{name}'" + (f", did you mean '{near[0]}'?" if near else f"; there are {', '.join(sorted(fields))}")
