"""The rules of the house: short files, short functions, few parameters.

What counts of a function is its signature and its code. A docstring is read instead of the code: a long
one is no fault.
"""

import ast
from pathlib import Path

import advfrontier

SOURCE = Path(advfrontier.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def functions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{path.relative_to(SOURCE)}:{node.name}", node


def test_no_file_is_longer_than_320_lines():
    assert {str(path.relative_to(SOURCE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 320} == {}


def length(node):
    """Lines of a function without those of its docstring."""
    text = node.body[0] if ast.get_docstring(node) else None
    return node.end_lineno - node.lineno + 1 - (text.end_lineno - text.lineno + 1 if text else 0)


def test_no_function_is_longer_than_45_lines_without_its_docstring():
    assert {name: n for name, node in functions() if (n := length(node)) > 45} == {}


def test_no_public_function_takes_more_than_12_parameters():
    counted = {
        name: len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) for name, node in functions()
    }
    assert {name: n for name, n in counted.items() if n > 12 and not name.split(":")[1].startswith("_")} == {}
