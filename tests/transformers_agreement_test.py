#!/usr/bin/env python3
"""Bits per byte and greedy generation agree with transformers on the exported model, in both families."""
import json
import math
import pathlib
import shutil
import subprocess
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --tests installs it")
    sys.exit(77)

program = pathlib.Path(sys.argv[1]).resolve()
make_checkpoint = program.parent / "tests" / "make_checkpoint"
work = pathlib.Path("work").resolve()
shutil.rmtree(work, ignore_errors=True)
work.mkdir()
context, items, rows = 32, 280, 300


def run(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout


text = "the cat sat on the mat, and the dog lay by the door.\nPack my box with five dozen jugs.\n" * 9
(work / "text.txt").write_text(text)
run("tokenizer", "train", "--input", work / "text.txt", "--vocab-size", items, "--out", work / "tokenizer.json")


def encode(string):
    (work / "string.txt").write_text(string)
    return json.loads(run("tokenizer", "encode", "--tokenizer", work / "tokenizer.json", "--json", work / "string.txt"))


@torch.no_grad()
def logits(model, ids):
    return model(torch.tensor([ids])).logits[0].double()


def nats(model, ids):
    """By the rule of docs/evaluate-and-generate.md: a token counts in the first window that holds it."""
    whole, total, counted, begin = [0, *ids, 0], 0.0, 0, 0
    while counted < len(whole) - 1:
        end = min(begin + context, len(whole) - 1)
        rows_ = torch.log_softmax(logits(model, whole[begin:end]), dim=1)
        for position in range(counted, end):
            total -= rows_[position - begin, whole[position + 1]].item()
        counted, begin = end, begin + context // 2
    return total


for family in ("jurassic", "llama"):
    folder = work / family
    subprocess.run([make_checkpoint, folder / "checkpoints", family, work / "tokenizer.json", str(rows)], check=True)
    run("checkpoint", "export", "--format", "hf", "--out", work / f"{family}-hf", folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(work / f"{family}-hf", dtype=torch.float32).eval()

    for string in (text, "the cat", "Pack my box\n"):
        (work / "input.txt").write_text(string)
        for precision, tolerance in (("fp32", 1e-5), ("fp64", 1e-5), ("bf16", 2e-2)):
            ours = json.loads(run("eval", "--checkpoint", folder, "--text", work / "input.txt", "--precision", precision,
                                  "--json"))
            theirs = nats(model, encode(string)) / math.log(2) / len(string)
            assert abs(ours["bits_per_byte"] / theirs - 1) < tolerance, (family, precision, ours, theirs)

    for prompt in ("the cat", "", "Pack my box with"):
        made = json.loads(run("generate", "--checkpoint", folder, "--prompt", prompt, "--temperature", 0, "--max-tokens", 20,
                              "--precision", "fp32", "--json"))
        ids, expected = [0, *encode(prompt)], []
        while len(expected) < 20 and len(ids) <= context:
            best = logits(model, ids)[-1, :items].argmax().item()
            if best == 0:
                break
            expected.append(best)
            ids.append(best)
        assert made["ids"] == expected, (family, prompt, made["ids"], expected)
print("bits per byte and greedy generation: as transformers has them")
