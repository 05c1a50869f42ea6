"""What is read into structs is made known to msgspec by one thread at a time."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tampu

_MANY_AT_ONCE = """
import sys, threading
import msgspec
from tampu.model.decoders import convert, from_json

sys.setswitchinterval(1e-6)
inner = [(f"f{k}", "list[int] | None", None) for k in range(20)]
raw = msgspec.json.encode({f"f{k}": k for k in range(8)})
wrong = []

def read(turn, outer, number):
    turn.wait()
    try:
        made = from_json(outer).decode(raw) if number % 2 else convert(msgspec.json.decode(raw), outer)
        assert made.f7 == 7
    except Exception as error:
        wrong.append(error)

for n in range(100):
    globals()[f"I{n}"] = msgspec.defstruct(f"I{n}", inner, module="__main__")
    fields = [(f"f{k}", f"list[I{n}] | int" if k == 3 else int) for k in range(8)]
    outer = msgspec.defstruct(f"S{n}", fields, module="__main__")
    turn = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(turn, outer, number)) for number in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert not wrong, wrong[0]
"""


def test_threads_that_are_the_first_to_read_a_struct_do_not_crash() -> None:
    command = [sys.executable, "-c", _MANY_AT_ONCE]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_nothing_is_read_into_structs_by_another_way() -> None:
    package = Path(tampu.__file__).parent
    files = [file for file in package.rglob("*.py") if file != package / "model" / "decoders.py"]
    assert len(files) > 300
    found = [f"{file.relative_to(package)}:{line}" for file in files for line in _other_ways(file)]
    assert not found, "use tampu.model.decoders"


def _other_ways(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            typed = bool(node.args) or any(word.arg == "type" for word in node.keywords)
            if called.startswith("msgspec.") and (
                called.endswith("convert")
                or (called.endswith(".Decoder") and typed)
                or (called.endswith(".decode") and any(word.arg == "type" for word in node.keywords))
            ):
                yield node.lineno
