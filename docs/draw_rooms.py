#!/usr/bin/env python3
"""Draws docs/rooms.svg: the rooms of src/ in order, with the arrows of what each one uses.

    docs/draw_rooms.py          writes docs/rooms.svg
The rooms and their descriptions come from docs/rooms.txt, the arrows from ROOMS in src/*/CMakeLists.txt.
"""
import html
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))
sys.dont_write_bytecode = True
from layering import described_rooms, room_list  # noqa: E402

ROW, TOP, LEFT, WIDTH, BOX = 44, 24, 190, 980, 150


def direct(room, used):
    """What a room uses, less what those rooms bring with them."""
    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for other in used.get(todo.pop(), []):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen
    return [u for u in used[room] if not any(u in reach(v) for v in used[room] if v != u)]


def main():
    rooms = described_rooms(DOCS.parent)
    order = {name: i for i, (name, _) in enumerate(rooms)}
    used, tensors = {}, set()
    for name, _ in rooms:
        cmake = DOCS.parent / "src" / name / "CMakeLists.txt"
        text = cmake.read_text() if cmake.exists() else ""
        used[name] = room_list(text, "ROOMS")
        if re.search(r"\blibtorch\b", text) or tensors.intersection(used[name]):
            tensors.add(name)
    height = TOP + ROW * (len(rooms) + 1) + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#7a8699"/></marker></defs>',
    ]
    for name, text in rooms:
        y = TOP + ROW * order[name]
        fill = "#fdebd0" if name in tensors else "#e3eefc"
        out.append(f'<rect x="{LEFT}" y="{y}" width="{BOX}" height="30" rx="6" fill="{fill}" stroke="#7a8699"/>')
        out.append(f'<text x="{LEFT + BOX / 2}" y="{y + 20}" text-anchor="middle" font-weight="bold">{name}/</text>')
        out.append(f'<text x="{LEFT + BOX + 16}" y="{y + 20}" fill="#333">{html.escape(text)}</text>')
        for other in direct(name, used):
            to = TOP + ROW * order[other] + 18
            bend = LEFT - 22 - 12 * (order[name] - order[other])
            out.append(f'<path d="M{LEFT} {y + 12}C{bend} {y + 12} {bend} {to} {LEFT - 2} {to}" fill="none" '
                       'stroke="#7a8699" marker-end="url(#tip)"/>')
    y = TOP + ROW * len(rooms)
    out.append(f'<rect x="{LEFT}" y="{y}" width="{BOX}" height="30" rx="6" fill="#e6f4e6" stroke="#7a8699"/>')
    out.append(f'<text x="{LEFT + BOX / 2}" y="{y + 20}" text-anchor="middle" font-weight="bold">apps/sauropod/</text>')
    out.append(f'<text x="{LEFT + BOX + 16}" y="{y + 20}" fill="#333">one file per subcommand: parses, calls the rooms, '
               'prints</text>')
    out.append("</svg>")
    (DOCS / "rooms.svg").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
