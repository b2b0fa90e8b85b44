#!/usr/bin/env python3
"""Fails when a room of src/ uses a room below it, or torch where it must not.

The order of the rooms is SAUROPOD_ROOMS in CMakeLists.txt: each may use only rooms before it, in its #include lines and
in the ROOMS of its CMakeLists.txt. Torch headers are for the rooms in TENSOR_ROOMS, and never the two that include all
of ATen (they cost ten seconds a file). See docs/architecture.md.

    layering.py [ROOT]        checks the repository
    layering.py --self-test   plants each kind of fault in a copy and expects it to be found
"""
import pathlib
import re
import sys
import tempfile

TENSOR_ROOMS = {"comm", "ops", "model", "parallel", "eval", "train", "plan", "cluster", "infer"}
FORBIDDEN = {"torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h"}
TORCH_FOLDERS = ("torch/", "ATen/", "c10/", "caffe2/")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def rooms_in_order(root):
    text = (root / "CMakeLists.txt").read_text()
    match = re.search(r"set\(SAUROPOD_ROOMS\s+([^)]*)\)", text)
    if not match:
        sys.exit("layering: CMakeLists.txt has no set(SAUROPOD_ROOMS …)")
    return match.group(1).split()


def described_rooms(root):
    """[(name, description)] of docs/rooms.txt, in order."""
    lines = (root / "docs" / "rooms.txt").read_text().splitlines()
    return [tuple(part.strip() for part in line.split("|", 1)) for line in lines if line and not line.startswith("#")]


def room_list(cmake_text, keyword):
    """The words after ROOMS in sauropod_room(…), up to the next keyword."""
    text = re.sub(r"#.*", "", cmake_text)
    words = [w for call in re.findall(r"sauropod_room\(([^)]*)\)", text) for w in call.split()]
    found, inside = [], False
    for word in words:
        if word.isupper() and re.fullmatch(r"[A-Z_]+", word):
            inside = word == keyword
        elif inside:
            found.append(word)
    return found


def check(root):
    """All faults as lines `file:line: what`."""
    rooms = rooms_in_order(root)
    rank = {room: i for i, room in enumerate(rooms)}
    faults = []
    if [name for name, _ in described_rooms(root)] != rooms:
        faults.append("docs/rooms.txt: its rooms differ from SAUROPOD_ROOMS in CMakeLists.txt")
    for folder in sorted((root / "src").iterdir()):
        if not folder.is_dir():
            continue
        room = folder.name
        if room not in rank:
            faults.append(f"src/{room}: is not in SAUROPOD_ROOMS")
            continue
        cmake = folder / "CMakeLists.txt"
        if cmake.exists():
            for used in room_list(cmake.read_text(), "ROOMS"):
                if used not in rank:
                    faults.append(f"src/{room}/CMakeLists.txt: no such room: {used}")
                elif rank[used] >= rank[room]:
                    faults.append(f"src/{room}/CMakeLists.txt: {room} uses {used}, which comes after it")
        sources = sorted(p for p in folder.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".hpp", ".inc"})
        for path in sources:
            faults += check_source(root, path, room, rank)
    return faults


def check_source(root, path, room, rank):
    faults = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        place = f"{path.relative_to(root)}:{number}"
        header = match.group(1) or match.group(2)
        first = header.split("/")[0]
        if header in FORBIDDEN:
            faults.append(f"{place}: includes <{header}>; include <ATen/ops/NAME.h> instead")
        elif header.startswith(TORCH_FOLDERS) and room not in TENSOR_ROOMS:
            faults.append(f"{place}: includes <{header}>, and {room} is free of torch")
        if header.startswith("..") or header.startswith("src/"):
            faults.append(f"{place}: names {header} by path; write \"room/file.h\"")
        elif match.group(1) and "/" in header and first in rank and rank[first] > rank[room]:
            faults.append(f"{place}: {room} includes {header}, and {first} comes after it")
        elif match.group(1) and "/" in header and first not in rank and not (path.parent / header).exists():
            faults.append(f"{place}: includes \"{header}\", which is in no room")
    return faults


def self_test():
    plants = {
        "src/b/x.h": ('#include "c/y.h"\n', "b includes c/y.h"),
        "src/a/CMakeLists.txt": ("sauropod_room(a SOURCES x.cpp\n  ROOMS b # no\n  LIBRARIES z)\n", "a uses b"),
        "src/a/x.cpp": ("  #  include <ATen/core/Tensor.h>\n", "a is free of torch"),
        "src/ops/x.cpp": ("#include <torch/torch.h>\n", "instead"),
        "src/ops/y.cpp": ("#include <ATen/ATen.h>\n", "instead"),
        "src/b/z.cpp": ('#include "../a/x.h"\n', "by path"),
        "src/odd/x.cpp": ("\n", "not in SAUROPOD_ROOMS"),
        "docs/rooms.txt": ("a | one\nc | three\nb | two\nops | four\n", "differ"),
    }
    sound = {
        "CMakeLists.txt": "set(SAUROPOD_ROOMS\n  a b c ops)\n",
        "docs/rooms.txt": "# comment\na | one\nb | two\nc | three\nops | four\n",
        "src/a/fine.h": "#include <string>\n",
        "src/b/fine.h": '#include "a/fine.h"\n#include "b/other.h"\n#include "sibling.h"\n',
        "src/b/CMakeLists.txt": "sauropod_room(b SOURCES x.cpp ROOMS a LIBRARIES c)\n",
        "src/ops/fine.cpp": '#include <ATen/ops/add.h>\n// #include "nowhere/x.h"\n#include "c/y.h"\n',
    }
    failures = []
    for planted in [None, *plants]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = dict(sound)
            if planted:
                files[planted] = plants[planted][0]
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            faults = check(root)
            if planted is None and faults:
                failures.append(f"sound tree: {faults}")
            if planted and not (len(faults) == 1 and plants[planted][1] in faults[0]):
                failures.append(f"{planted}: expected one fault with '{plants[planted][1]}', got {faults}")
    return failures


def main():
    if sys.argv[1:] == ["--self-test"]:
        faults = self_test()
    else:
        faults = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    for fault in faults:
        print(fault)
    print("layering:", f"{len(faults)} faults" if faults else "sound")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
