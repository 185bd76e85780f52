#!/usr/bin/env python3
"""No class or module of these folders defines a function or a class twice: of two tests of one name the first would never run.

    duplicates.py FOLDER...
"""
import ast
import pathlib
import sys

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def duplicates(path):
    """Line and name of each definition that hides an earlier one. Definitions below `if` and `try` are alternatives."""
    for scope in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if not isinstance(scope, (ast.Module, *DEFINES)):
            continue
        seen = set()
        for node in scope.body:
            if isinstance(node, DEFINES) and not any(isinstance(d, ast.Attribute) for d in node.decorator_list):  # not @name.setter
                if node.name in seen:
                    yield node.lineno, node.name
                seen.add(node.name)


def main():
    found = [f'{path}:{line}: {name} is defined twice' for folder in sys.argv[1:] for path in sorted(pathlib.Path(folder).rglob('*.py'))
             for line, name in duplicates(path)]
    print('\n'.join(found))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
