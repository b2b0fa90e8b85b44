#!/usr/bin/env python3
"""A run of four ranks whose ranks are killed and stopped at random goes on from its checkpoints, and ends with the bits of
an undisturbed one; the launcher names the rank that was hit.

    train_faults_test.py SAUROPOD [--all]     in an empty folder

With --all thirty faults instead of four.
"""
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

program = str(pathlib.Path(sys.argv[1]).resolve())
folder = pathlib.Path("work").resolve()
faults = 30 if "--all" in sys.argv else 4

RECIPE = """
[model]
family = "jurassic"
layers = 2
hidden = 32
heads = 2
context = 32
[tokenizer]
path = "TOKENIZER"
[data]
train = "DATA/train"
[train]
steps = STEPS
batch_sequences = 8
micro_batch = 2
learning_rate = 1e-2
precision = "fp32"
threads = 1
[checkpoint]
every = 10
keep_last = 2
[parallel]
tensor = 2
sequence = true
[communication]
timeout = "6s"
"""


def sauropod(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_inputs():
    chance = random.Random(5)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 7))) for _ in range(300)]
    text = folder / "text"
    text.mkdir(parents=True)
    for number in range(60):
        (text / f"{number:02}.txt").write_text(" ".join(chance.choices(words, k=300)) + ".\n")
    sauropod("tokenizer", "train", "--input", text, "--vocab-size", 401, "--out", folder / "tokenizer.json")
    sauropod("data", "pack", "--tokenizer", folder / "tokenizer.json", "--input", text, "--out", folder / "data",
             "--valid-fraction", "0.1")
    (folder / "recipe.toml").write_text(RECIPE.replace("TOKENIZER", str(folder / "tokenizer.json"))
                                        .replace("DATA", str(folder / "data"))
                                        .replace("STEPS", str(120 * (1 + faults))))


def start(out, *options):
    log = open(folder / f"{out.name}.log", "w")
    return subprocess.Popen([program, "launch", "-n", "4", *options, "--", "train", str(folder / "recipe.toml"), "--out",
                             str(out)], stdout=log, stderr=log)


def ranks_of(launcher):
    """{rank: process} of the launcher's descendants that train."""
    parents, found = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
    for process in parents:
        ancestor = process
        while ancestor in parents and ancestor != launcher:
            ancestor = parents[ancestor]
        if ancestor != launcher:
            continue
        try:
            command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            environment = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [entry for entry in environment if entry.startswith(b"SAUROPOD_RANK=")]
        if rank and b"train" in command and b"launch" not in command:
            found[int(rank[0].split(b"=")[1])] = process
    return found


def step_of(out):
    try:
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def wait_for(condition, launcher, limit, what):
    end = time.monotonic() + limit
    while not condition():
        assert launcher.poll() is None, f"the launcher ended with {launcher.returncode} before {what}"
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.02)


def contents(out):
    """Of the newest checkpoint: its name, and the hashes of all tensors."""
    newest = sorted((out / "checkpoints").iterdir())[-1]
    shown = sauropod("checkpoint", "show", newest, "--contents").splitlines()
    assert len(shown) > 30, shown
    return newest.name, [line for line in shown[1:] if not line.strip().startswith("seconds:")]


def main():
    shutil.rmtree(folder, ignore_errors=True)
    make_inputs()
    undisturbed, out = folder / "undisturbed", folder / "disturbed"
    assert start(undisturbed).wait(timeout=600) == 0, (folder / "undisturbed.log").read_text()

    seed = random.randrange(2**32)
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    launcher = start(out, "--max-restarts", str(faults + 2))
    log = folder / "disturbed.log"
    try:
        for number in range(faults):
            begin = step_of(out)
            goal = begin + chance.randint(1, 60)
            wait_for(lambda: step_of(out) >= goal and len(ranks_of(launcher.pid)) == 4, launcher, 120,
                     f"step {goal}, for fault {number}")
            time.sleep(chance.random() * 0.2)
            rank, hit = chance.choice(sorted(ranks_of(launcher.pid).items()))
            how = signal.SIGSTOP if number % 4 == 3 else signal.SIGKILL
            before = len(log.read_text())
            subprocess.run(["kill", f"-{int(how)}", str(hit)], check=True)
            began = time.monotonic()
            # The ranks of that attempt all end; the wait for a stopped one is the time-out.
            wait_for(lambda: hit not in ranks_of(launcher.pid).values(), launcher, 60, f"the end of rank {rank}")
            seen = time.monotonic() - began
            print(f"fault {number}: {how.name} of rank {rank} at step {step_of(out)}, seen after {seen:.1f} s", flush=True)
            wait_for(lambda: "starting all ranks again" in log.read_text()[before:], launcher, 60, "another start")
            blamed = re.findall(r"error rank (\d+) \(", log.read_text()[before:])
            assert blamed and set(blamed) == {str(rank)}, \
                f"rank {rank} was hit, and blamed are {blamed}:\n{log.read_text()[before:]}"
        assert launcher.wait(timeout=600) == 0, log.read_text()[-3000:]
    finally:
        launcher.terminate()
        launcher.wait(timeout=60)
    assert contents(out) == contents(undisturbed)
    print(f"{faults} faults, and the bits of an undisturbed run")


if __name__ == "__main__":
    main()
