#!/usr/bin/env python3
"""sauropod eval and sauropod generate as a person meets them.

    eval_generate_test.py SAUROPOD      in an empty folder; make_checkpoint is in tests/ beside the program
"""
import gzip
import json
import pathlib
import shutil
import subprocess
import sys

program = pathlib.Path(sys.argv[1]).resolve()
make_checkpoint = program.parent / "tests" / "make_checkpoint"
work = pathlib.Path("work").resolve()
shutil.rmtree(work, ignore_errors=True)
(work / "text").mkdir(parents=True)
(work / "empty").mkdir()


def run(*arguments, code=0, says=(), stdin=b""):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, input=stdin, timeout=300)
    errors = done.stderr.decode()
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}, not {code}\n{errors}"
    for part in says:
        assert part in errors, f"{part!r} is not in: {errors}"
    assert code == 0 or not done.stdout, done.stdout
    return done.stdout


def close(a, b, tolerance=1e-9):
    assert abs(a - b) <= tolerance * abs(b), (a, b)


documents = ["the cat sat on the mat, and the dog lay by the door.\n" * count for count in (1, 12, 5)]
documents.append("short \x00 \u00e9 line\r\n\tend")
for number, document in enumerate(documents):
    (work / "text" / f"{number}.txt").write_bytes(document.encode())
with gzip.open(work / "lines.jsonl.gz", "wt") as file:
    for document in documents:
        file.write(json.dumps({"body": document}) + "\n\n")
size = sum(len(document.encode()) for document in documents)
run("tokenizer", "train", "--input", work / "text", "--vocab-size", 280, "--out", work / "tokenizer.json")
run("data", "pack", "--tokenizer", work / "tokenizer.json", "--input", work / "text", "--out", work / "data",
    "--valid-fraction", 0)
# A model may have more rows than its tokenizer has items.
subprocess.run([make_checkpoint, work / "run" / "checkpoints", "jurassic", work / "tokenizer.json", "300"], check=True)
common = ("--checkpoint", work / "run", "--precision", "fp32")


def evaluate(*arguments, **options):
    return json.loads(run("eval", *common, *arguments, "--json", **options))


# Text: the same whatever it is read from and however it is batched.
whole = evaluate("--text", work / "text")
assert whole["bytes"] == size and whole["documents"] == 4, whole
assert whole["precision"] == "fp32" and whole["step"] == 5, whole
ids = [json.loads(run("tokenizer", "encode", "--tokenizer", work / "tokenizer.json", "--json",
                      work / "text" / f"{number}.txt")) for number in range(4)]
assert whole["tokens"] == sum(len(list_) + 1 for list_ in ids), whole
close(whole["bits_per_byte"], whole["nats_per_token"] * whole["tokens"] / 0.6931471805599453 / size)
close(whole["bytes_per_token"], size / whole["tokens"])
for other in (evaluate("--text", work / "lines.jsonl.gz", "--field", "body"),
              evaluate("--text", *sorted((work / "text").iterdir()), "--batch", 1)):
    assert other["tokens"] == whole["tokens"] and other["bytes"] == size, other
    close(other["bits_per_byte"], whole["bits_per_byte"], 1e-5)
one = evaluate("--text", "-", stdin=documents[1].encode())
close(one["nats_per_token"], evaluate("--text", work / "text" / "1.txt")["nats_per_token"])
assert b"bits per byte" in run("eval", *common, "--text", work / "text")

# Packed data.
packed = evaluate("--data", work / "data" / "train")
assert packed["bytes"] == size and packed["tokens"] == whole["tokens"], packed
assert abs(packed["bits_per_byte"] / whole["bits_per_byte"] - 1) < 0.2, (packed, whole)
assert evaluate("--data", work / "data" / "train", "--windows", 1)["tokens"] == 32

# Wrong use of eval.
run("eval", *common, code=2, says=["--text", "--data"])
run("eval", *common, "--text", work / "nothing", code=2, says=["nothing"])
run("eval", *common, "--text", work / "empty", code=2, says=["empty"])
run("eval", *common, "--data", work / "data" / "nothing", code=2, says=["nothing"])
run("eval", "--checkpoint", work / "text", "--text", work / "text", code=1, says=["holds no checkpoint"])
run("eval", "--checkpoint", work / "run", "--precision", "fp16", "--text", work / "text", code=2, says=["fp16"])


def generate(*arguments, **options):
    return json.loads(run("generate", *common, *arguments, "--json", **options))


# The same seed gives the same text, printed or as JSON; another seed gives another.
ask = ("--prompt", "the cat", "--max-tokens", 20)
first = generate(*ask, "--seed", 1)
assert first == generate(*ask, "--seed", 1)
assert first["ids"] != generate(*ask, "--seed", 2)["ids"]
assert first["prompt"] == "the cat" and first["tokens"] == len(first["ids"]) <= 20, first
assert all(0 < id_ < 280 for id_ in first["ids"]), first
assert first["finish_reason"] == ("length" if first["tokens"] == 20 else "stop"), first
assert generate("--prompt", "-", "--max-tokens", 20, "--seed", 1, stdin=b"the cat")["ids"] == first["ids"]
(work / "ids").write_text(" ".join(map(str, first["ids"])))
continuation = run("tokenizer", "decode", "--tokenizer", work / "tokenizer.json", work / "ids")
assert run("generate", *common, *ask, "--seed", 1) == b"the cat" + continuation + b"\n"
assert continuation.decode(errors="replace") == first["text"]

several = generate(*ask, "--seed", 1, "--n", 3)
assert len(several["choices"]) == 3 and several["choices"][0]["text"] == several["text"], several
assert several["choices"][0]["ids"] != several["choices"][1]["ids"]
assert b"--- 3 ---" in run("generate", *common, *ask, "--n", 3)
greedy = [generate(*ask, "--temperature", 0, "--seed", seed)["ids"] for seed in (1, 2)]
assert greedy[0] == greedy[1] == generate(*ask, "--top-k", 1)["ids"]

# The context ends the text, and says so.
full = generate("--prompt", "", "--max-tokens", 1000, "--repetition-penalty", 1.5)
assert full["finish_reason"] == "length" and full["tokens"] == 32 or full["finish_reason"] == "stop", full
if full["finish_reason"] == "length":
    run("generate", *common, "--prompt", "", "--max-tokens", 1000, "--repetition-penalty", 1.5,
        says=["context of 32 tokens is full"])

# Wrong use of generate.
run("generate", *common, "--prompt", "xyzzy " * 100, code=2, says=["context is 32"])
run("generate", *common, *ask, "--temperature", -1, code=2, says=["temperature"])
run("generate", *common, *ask, "--top-p", 0, code=2, says=["top-p"])
run("generate", *common, "--max-tokens", 3, code=2)
damaged = sorted((work / "run").rglob("data-*.safetensors"))[0]
content = bytearray(damaged.read_bytes())
content[-5] ^= 16
damaged.write_bytes(content)
run("generate", *common, *ask, code=1, says=[damaged.name])
print("eval and generate: as a person meets them")
