#!/usr/bin/env python3
"""sauropod data pack and inspect as a person meets them: round trip, exit codes, nothing half-written.

    data_command_test.py SAUROPOD      in an empty folder
"""
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

program = sys.argv[1]
folder = pathlib.Path("work").resolve()


def sauropod(*arguments, expect=0, says=(), **options):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, timeout=120, **options)
    message = done.stderr.decode(errors="replace")
    assert done.returncode == expect, f"exit code {done.returncode}, not {expect}: {message}"
    for part in says:
        assert part in message, f"{part!r} is not in: {message}"
    return done.stdout


def contents(path):
    return {name.name: name.read_bytes() for name in path.iterdir()} if path.exists() else {}


def make_text():
    chance = random.Random(3)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 8))) for _ in range(500)]
    text = folder / "text"
    (text / "below").mkdir(parents=True)
    documents = {}
    for number in range(300):
        body = " ".join(chance.choices(words, k=400)).encode() + bytes(chance.choices(range(256), k=20))
        name = text / ("below" if number % 3 == 0 else ".") / f"{number:03}.txt"
        name.write_bytes(body)
        documents[str(name.resolve())] = body
    (text / ".hidden").write_bytes(b"not read")
    return text, [documents[name] for name in sorted(documents)]


def check_round_trip(text, bodies, tokenizer):
    out = folder / "data"
    record = json.loads(sauropod("data", "pack", "--tokenizer", tokenizer, "--input", text, "--out", out,
                                 "--valid-fraction", "0.1", "--threads", "1", "--json"))
    first = contents(out)
    assert sorted(first) == ["pack.json", "train.bin", "train.idx", "valid.bin", "valid.idx"]
    for threads in ("2", "5"):
        sauropod("data", "pack", "--tokenizer", tokenizer, "--input", text, "--out", out, "--valid-fraction", "0.1",
                 "--threads", threads)
        assert contents(out) == first, threads
    found = []
    for side in ("train", "valid"):
        sauropod("data", "inspect", out / side, "--tokenizer", tokenizer, "--decode-to", folder / side)
        documents = [path.read_bytes() for path in sorted((folder / side).iterdir())]
        assert len(documents) == record["splits"][side]["documents"] > 0
        assert b"".join(documents) == sauropod("data", "inspect", out / side, "--tokenizer", tokenizer, "--decode")
        found += documents
    assert sorted(found) == sorted(bodies)
    seen = json.loads(sauropod("data", "inspect", out, "--json"))["corpora"]
    assert [corpus["tokens"] for corpus in seen] == [record["splits"][side]["tokens"] for side in ("train", "valid")]
    assert all(corpus["verified"] for corpus in seen)

    # The same documents as JSON lines, bytes that are no UTF-8 included, fall on the same sides.
    def quoted(body):
        return b"".join(b"\\u%04x" % c if c < 32 or c in b'"\\' else bytes([c]) for c in body)

    lines = folder / "text.jsonl.gz"
    lines.write_bytes(gzip.compress(b"".join(b'{"body": "%s", "n": 1}\n' % quoted(body) for body in reversed(bodies))))
    sauropod("data", "pack", "--tokenizer", tokenizer, "--input", lines, "--out", folder / "lines", "--field", "body",
             "--valid-fraction", "0.1")
    sauropod("data", "inspect", folder / "lines/valid", "--tokenizer", tokenizer, "--decode-to", folder / "lines-valid")
    assert sorted(path.read_bytes() for path in (folder / "lines-valid").iterdir()) == \
        sorted(found[record["splits"]["train"]["documents"]:])

    # Standard input is one document; its end is held out.
    record = json.loads(sauropod("data", "pack", "--tokenizer", tokenizer, "--input", "-", "--out", folder / "stdin",
                                 "--json", input=b"\n".join(bodies), says=["single document"]))
    assert record["held_out"] == "end_of_document"
    both = b"".join(sauropod("data", "inspect", folder / "stdin" / side, "--tokenizer", tokenizer, "--decode")
                    for side in ("train", "valid"))
    assert both == b"\n".join(bodies)


def check_mistakes(text, tokenizer):
    """Each ends with its exit code and message; the packing that was there stays; nothing else is left."""
    out = folder / "data"
    before = contents(out)

    def pack(path, expect, says, **options):
        sauropod("data", "pack", "--tokenizer", tokenizer, "--input", path, "--out", out, expect=expect, says=says,
                 **options)
        assert contents(out) == before

    (folder / "empty").mkdir()
    pack(folder / "empty", 2, ["no text in the folder", "looked in it"])
    pack(folder / "missing", 2, ["there is no such file or folder"])
    bad = folder / "bad.jsonl"
    bad.write_text('{"text": "a"}\n["b"]\n')
    pack(bad, 2, ["bad.jsonl:2", "is not a JSON object"])
    bad.write_text('{"text": "a"}\n\n{"words": "b"}\n')
    pack(bad, 2, ["bad.jsonl:3", "no field 'text'", "--field"])
    packed = folder / "cut.txt.gz"
    packed.write_bytes(gzip.compress(os.urandom(100000))[:50000])
    pack(packed, 1, ["cut.txt.gz", "cut short"])

    def small_files():  # as a full disk: writing stops in the middle
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    pack(text, 1, ["cannot write", "data/"], preexec_fn=small_files)
    sauropod("data", "pack", "--tokenizer", tokenizer, "--input", text, "--out", "/proc/sauropod", expect=1,
             says=["cannot create the folder /proc/sauropod"])
    sauropod("data", "pack", "--input", text, "--out", out, expect=2)
    sauropod("data", "inspect", folder / "nothing", expect=2, says=["nothing.idx", "data pack"])
    sauropod("data", "inspect", out, "--tokenizer", tokenizer, "--decode", expect=2, says=["two corpora"])

    damaged = folder / "damaged"
    shutil.copytree(out, damaged)
    data = bytearray((damaged / "valid.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / "valid.bin").write_bytes(data)
    sauropod("data", "inspect", damaged, expect=1, says=["valid.bin does not hold what was packed"])
    (damaged / "valid.bin").write_bytes(data[:-1])
    sauropod("data", "inspect", damaged / "valid", expect=1, says=["cut short"])
    other = folder / "other.json"
    sauropod("tokenizer", "train", "--input", text, "--vocab-size", "400", "--out", other)
    sauropod("data", "inspect", out / "train", "--tokenizer", other, expect=2, says=["another tokenizer"])


def check_interrupt(tokenizer):
    """Ctrl-C while text is still to come ends at once and leaves nothing."""
    out = folder / "interrupted"
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([program, "data", "pack", "--tokenizer", tokenizer, "--input", "-", "--out", out],
                                   stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(contents(out)) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(contents(out)) == 4, "no files are being written"
        process.send_signal(number)
        assert process.wait(60) == -number
        process.stdin.close()
        assert contents(out) == {}


def main():
    shutil.rmtree(folder, ignore_errors=True)
    text, bodies = make_text()
    tokenizer = folder / "tokenizer.json"
    sauropod("tokenizer", "train", "--input", text, "--vocab-size", "700", "--out", tokenizer)
    check_round_trip(text, bodies, tokenizer)
    check_mistakes(text, tokenizer)
    check_interrupt(tokenizer)
    shutil.rmtree(folder)
    print("data pack and inspect do as documented")


main()
