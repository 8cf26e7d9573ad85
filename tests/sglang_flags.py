"""The flags that sglang's own parser knows, read from its source: importing it needs torch and a GPU.

    python3 tests/sglang_flags.py sglang_kt-VERSION.whl >tests/fixtures/sglang-flags.json

A file of the wheel is parsed, never run. `choices` that follow from a table elsewhere in the wheel are
looked up there; what can't be read so is left out, and a flag without choices takes anything.
"""

import ast
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PARSER = "sglang/srt/server_args.py"
# Table of choices in the parser's source -> the file of the wheel and the name that it has there.
TABLES = {
    "ReasoningParser.DetectorMap": ("sglang/srt/parser/reasoning_parser.py", "DetectorMap"),
    "FunctionCallParser.ToolCallParserEnum": (
        "sglang/srt/function_call/function_call_parser.py",
        "ToolCallParserEnum",
    ),
}
RECORDED = Path(__file__).parent / "fixtures" / "sglang-flags.json"


@dataclass(frozen=True)
class Flag:
    """`values`: "0" of a switch, "1", or "+" for one and more. `type`: str, int, float or other."""

    values: str
    type: str = "str"
    choices: tuple[str, ...] = ()

    def objection(self, given: tuple[str, ...]) -> str | None:
        """Why the parser would refuse these values."""
        if {"0": not given, "1": len(given) == 1, "+": bool(given)}[self.values] is False:
            return f"takes {self.values} values, given are {len(given)}"
        pattern = {"int": r"-?\d+", "float": r"-?\d+(\.\d+)?"}.get(self.type, r".*")
        for value in given:
            if not re.fullmatch(pattern, value, re.DOTALL):
                return f"{value} is no {self.type}"
            if self.choices and value not in self.choices:
                return f"{value} is none of {', '.join(self.choices)}"
        return None


def recorded_flags() -> Mapping[str, Flag]:
    found = json.loads(RECORDED.read_text(encoding="utf-8"))["flags"]
    return {
        name: Flag(**{**flag, "choices": tuple(flag.get("choices", ()))})
        for name, flag in found.items()
    }


def record_of(wheel: Path) -> str:
    """What is committed: the flags, and which file they are of."""
    with zipfile.ZipFile(wheel) as opened:
        content = opened.read(PARSER)
        tables = {
            name: _keys_of(ast.parse(opened.read(path)), table)
            for name, (path, table) in TABLES.items()
        }
    flags = dict(sorted(_flags(ast.parse(content), tables)))
    lines = [f"    {json.dumps(name)}: {json.dumps(_plain(f))}" for name, f in flags.items()]
    head = {
        "package": wheel.name.split("-")[0],
        "version": wheel.name.split("-")[1],
        "file": PARSER,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    said = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    return "{\n" + said + '  "flags": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def _plain(flag: Flag) -> dict[str, Any]:
    return {name: value for name, value in asdict(flag).items() if value not in ("str", ())}


def _flags(tree: ast.Module, tables: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Flag]]:
    names = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            options = {keyword.arg: keyword.value for keyword in node.keywords}
            flag = Flag(
                values=_values(options),
                type=_type(options.get("type")),
                choices=_choices(options.get("choices"), names, tables),
            )
            for word in node.args:
                if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                    yield str(word.value), flag


def _values(options: Mapping[str | None, ast.expr]) -> str:
    action, count = options.get("action"), options.get("nargs")
    if action is not None and ast.unparse(action) in {"'store_true'", "'store_false'"}:
        return "0"
    return "+" if count is not None else "1"


def _type(given: ast.expr | None) -> str:
    if given is None:
        return "str"
    name = ast.unparse(given)
    return name if name in {"str", "int", "float"} else "other"


def _choices(
    given: ast.expr | None,
    names: Mapping[str, ast.expr],
    tables: Mapping[str, tuple[str, ...]],
) -> tuple[str, ...]:
    if isinstance(given, ast.Name):
        return _choices(names.get(given.id), names, tables)
    if isinstance(given, ast.List):
        constants = [item.value for item in given.elts if isinstance(item, ast.Constant)]
        return tuple(map(str, constants)) if len(constants) == len(given.elts) else ()
    table = re.fullmatch(r"list\(([\w.]+)\.keys\(\)\)", ast.unparse(given) if given else "")
    return tables.get(table[1], ()) if table else ()


def _keys_of(tree: ast.Module, name: str) -> tuple[str, ...]:
    """Of the dictionary that a class holds under this name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.AnnAssign)
            and getattr(node.target, "id", "") == name
            and isinstance(node.value, ast.Dict)
        ):
            return tuple(str(k.value) for k in node.value.keys if isinstance(k, ast.Constant))
    raise LookupError(name)


if __name__ == "__main__":
    sys.stdout.write(record_of(Path(sys.argv[1])))
