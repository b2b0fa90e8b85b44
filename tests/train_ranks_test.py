#!/usr/bin/env python3
"""sauropod train on several ranks: a checkpoint saved under one layout goes on under another, and the curve is that of
an uninterrupted run on one rank.

    train_ranks_test.py SAUROPOD [--all]      in an empty folder

Without --all each of six layouts saves once and loads once; with it every one loads what every one saved.
"""
import json
import math
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys

program = str(pathlib.Path(sys.argv[1]).resolve())
folder = pathlib.Path("work").resolve()

RECIPE = """
[model]
family = "FAMILY"
layers = 4
hidden = 32
heads = 4
context = 32
[tokenizer]
path = "TOKENIZER"
[data]
train = "DATA/train"
valid = "DATA/valid"
mask_documents = true
[train]
steps = 10
batch_sequences = 6
micro_batch = 1
batch_ramp = [[2, 2], [3, 3]]
learning_rate = 1e-2
schedule = "constant"
precision = "fp64"
threads = 1
[checkpoint]
every = 5
keep_last = 3
[eval]
every = 5
sequences = 4
"""

# The number of ranks and parallel.*; the vocabulary of 401 items is a multiple of nothing.
LAYOUTS = {
    "one rank": (1, {}),
    "data": (2, {"zero": "false"}),
    "data, ZeRO": (4, {}),
    "tensor and sequence": (2, {"tensor": 2, "sequence": "true"}),
    "pipeline, virtual stages": (2, {"pipeline": 2, "virtual_stages": 2}),
    "all": (8, {"tensor": 2, "sequence": "true", "pipeline": 2}),
}


def sauropod(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def train(layout, out, *arguments, expect=0):
    """All ranks, as torchrun would start them; returns the ranks' outputs on standard error."""
    ranks, options = LAYOUTS[layout] if isinstance(layout, str) else layout
    port = free_port()
    command = [program, "train", folder / "recipe.toml", "--out", out, *arguments]
    for key, value in options.items():
        command += ["--set", f"parallel.{key}={value}"]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, SAUROPOD_PROGRESS="off", OMP_NUM_THREADS="1")
        if ranks > 1:
            environment.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(subprocess.Popen([str(word) for word in command], env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    errors = []
    try:
        for process in processes:
            errors.append(process.communicate(timeout=240)[1])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, process in enumerate(processes):
        assert "frame #" not in errors[rank], f"rank {rank} shows a backtrace: {errors[rank]}"
        assert process.returncode == expect, f"{layout}, rank {rank} ended with {process.returncode}: {errors[rank]}"
    return errors


def curve(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["grad_norm"], line.get("validation_loss", 0)) for line in lines]


def assert_same_curve(run, reference, what):
    ours, theirs = curve(run), curve(reference)
    assert [step for step, *_ in ours] == [step for step, *_ in theirs], f"{what}: {ours}"
    for a, b in zip(ours, theirs):
        for x, y in zip(a, b):
            # fp64: sums in another order, and what ten steps of Adam make of it.
            assert math.isclose(x, y, rel_tol=1e-8), f"{what}: {a}, on one rank {b}"


def make_inputs(family):
    chance = random.Random(5)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 7))) for _ in range(300)]
    text = folder / "text"
    if not text.exists():
        text.mkdir(parents=True)
        for number in range(60):
            (text / f"{number:02}.txt").write_text(" ".join(chance.choices(words, k=300)) + ".\n")
        sauropod("tokenizer", "train", "--input", text, "--vocab-size", 401, "--out", folder / "tokenizer.json")
        sauropod("data", "pack", "--tokenizer", folder / "tokenizer.json", "--input", text, "--out", folder / "data",
                 "--valid-fraction", "0.1")
    (folder / "recipe.toml").write_text(RECIPE.replace("TOKENIZER", str(folder / "tokenizer.json"))
                                        .replace("DATA", str(folder / "data")).replace("FAMILY", family))


def check_resharding(family, pairs):
    make_inputs(family)
    reference = folder / f"{family}-uninterrupted"
    train("one rank", reference)
    saved = {}
    for save in dict.fromkeys(save for save, _ in pairs):
        saved[save] = folder / f"{family}-{save.replace(' ', '-')}"
        train(save, saved[save], "--set", "train.steps=5")
        sauropod("checkpoint", "verify", saved[save] / "checkpoints/step-000000005")
    for save, load in pairs:
        run = folder / "resumed"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(saved[save], run)
        train(load, run, "--resume")
        assert_same_curve(run, reference, f"{family}: saved under '{save}', loaded under '{load}'")


def check_refusals():
    make_inputs("jurassic")
    for layout, says in (((2, {"tensor": 3}), "does not divide the 2 ranks"),
                         ((2, {"pipeline": 2, "virtual_stages": 3}), "more than model.layers = 4"),
                         ((1, {"sequence": "true"}), "parallel.tensor is 1")):
        for error in train(layout, folder / "refused", expect=2):
            assert says in error, error
        assert not (folder / "refused").exists()


def main():
    shutil.rmtree(folder, ignore_errors=True)
    names = list(LAYOUTS)
    ring = [(name, names[(i + 1) % len(names)]) for i, name in enumerate(names)]
    if "--all" in sys.argv:
        for family in ("jurassic", "llama"):
            check_resharding(family, [(save, load) for save in names for load in names])
    else:
        check_resharding("jurassic", ring)
        check_refusals()
    print("a checkpoint of any layout goes on under", "any other" if "--all" in sys.argv else "the next")


if __name__ == "__main__":
    main()
