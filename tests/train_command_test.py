#!/usr/bin/env python3
"""sauropod train as a person meets it: the same bits after a resume, a kill or a signal; clear refusals.

    train_command_test.py SAUROPOD      in an empty folder
"""
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

program = str(pathlib.Path(sys.argv[1]).resolve())
source = pathlib.Path(__file__).resolve().parent.parent
folder = pathlib.Path("work").resolve()

RECIPE = """
[model]
family = "FAMILY"
layers = 2
hidden = 32
heads = 2
context = 32
[tokenizer]
path = "TOKENIZER"
[data]
train = "DATA/train"
valid = "DATA/valid"
[train]
steps = 40
batch_sequences = 4
micro_batch = 3
batch_ramp = [[2, 5]]
learning_rate = 1e-2
min_learning_rate = 1e-3
warmup_tokens = 500
precision = "PRECISION"
threads = 2
[checkpoint]
every = 5
keep_last = 3
[eval]
every = 20
sequences = 4
"""


def sauropod(*arguments, expect=0, says=(), **options):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == expect, f"exit code {done.returncode}, not {expect}: {done.stderr}"
    for part in says:
        assert part in done.stderr, f"{part!r} is not in: {done.stderr}"
    return done.stdout


def make_inputs():
    chance = random.Random(5)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 7))) for _ in range(300)]
    text = folder / "text"
    text.mkdir(parents=True)
    for number in range(60):
        (text / f"{number:02}.txt").write_text(" ".join(chance.choices(words, k=300)) + ".\n")
    for name, size in (("tokenizer.json", 400), ("other.json", 420)):
        sauropod("tokenizer", "train", "--input", text, "--vocab-size", size, "--out", folder / name)
    sauropod("data", "pack", "--tokenizer", folder / "tokenizer.json", "--input", text, "--out", folder / "data",
             "--valid-fraction", "0.1")


def make_recipe(name, family="jurassic", precision="fp32"):
    path = folder / name
    path.write_text(RECIPE.replace("TOKENIZER", str(folder / "tokenizer.json")).replace("DATA", str(folder / "data"))
                    .replace("FAMILY", family).replace("PRECISION", precision))
    return path


def state(run, step=40):
    """The hashes of everything a checkpoint holds, and its training state without the clock."""
    manifest = json.loads((run / f"checkpoints/step-{step:09}/manifest.json").read_text())
    text = json.dumps(manifest)
    tensors = [[t, manifest["tensors"][t]] if isinstance(manifest["tensors"], dict) else t for t in manifest["tensors"]]
    training = {k: v for k, v in manifest["training"].items() if k not in ("seconds", "recipe")}
    assert "hash" in text
    return json.dumps([tensors, training], sort_keys=True)


def losses(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), "a step is missing or doubled"
    return [(line["loss"], line["grad_norm"], line["learning_rate"], line["tokens"],
             line.get("validation_bits_per_byte")) for line in lines]


def check_whole_run(recipe, run):
    result = json.loads(sauropod("train", recipe, "--out", run, "--json"))
    assert result["step"] == 40 and result["ended_by"] == "steps" and result["tokens"] == (5 * 2 + 35 * 4) * 32
    for name in ("run.toml", "metrics.jsonl", "events.jsonl", "checkpoints"):
        assert (run / name).exists(), name
    curve = losses(run)
    assert len(curve) == 40 and curve[-1][0] < curve[0][0] - 0.5, curve
    assert curve[19][4] and curve[39][4] and not curve[5][4]
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["step-000000030", "step-000000035", "step-000000040"], kept
    return curve


def check_resume(recipe, whole, curve, *extra):
    run = folder / "parts"
    shutil.rmtree(run, ignore_errors=True)
    first = sauropod("train", recipe, "--out", run, "--set", "train.stop_file=" + str(folder / "stop"), *extra, "--json")
    assert json.loads(first)["ended_by"] == "steps"
    shutil.rmtree(run)
    # k steps, then the rest: stopped by the file before the first step, by SIGTERM later.
    (folder / "stop").touch()
    early = json.loads(sauropod("train", recipe, "--out", run, "--set", f"train.stop_file={folder / 'stop'}", "--json"))
    assert early["ended_by"] == "train.stop_file" and early["step"] == 0, early
    (folder / "stop").unlink()
    process = subprocess.Popen([program, "train", str(recipe), "--out", str(run), "--resume", *extra],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.time() + 120
    while time.time() < deadline and not (run / "metrics.jsonl").read_text().count("\n"):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0, process.returncode
    sauropod("train", recipe, "--out", run, "--resume", *extra)
    assert state(run) == state(whole), "resumed after SIGTERM: other bits"
    assert losses(run) == curve


def check_kills(recipe, whole, curve, kills):
    run = folder / "killed"
    shutil.rmtree(run, ignore_errors=True)
    chance = random.Random(11)
    survived = 0
    for _ in range(kills):
        process = subprocess.Popen([program, "train", str(recipe), "--out", str(run), "--resume"],
                                   stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(0.05, 0.9))
            survived += 1
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    sauropod("train", recipe, "--out", run, "--resume")
    assert state(run) == state(whole), "resumed after kill -9: other bits"
    assert losses(run) == curve
    assert survived < kills, "no kill came before the end"


def check_damage(recipe, whole, curve):
    run = folder / "damaged"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(whole, run)
    newest = run / "checkpoints/step-000000040"
    victim = next(newest.glob("*.safetensors"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    sauropod("train", recipe, "--out", run, "--resume", says=(victim.name, "step-000000035"))
    assert state(run) == state(whole)
    assert losses(run) == curve


def check_refusals(recipe, whole):
    def refused(*arguments, says, expect=2):
        sauropod("train", recipe, *arguments, expect=expect, says=says)

    new = folder / "refused"
    refused("--out", new, "--set", "train.stepz=3", says=("train.stepz", "train.steps"))
    refused("--out", new, "--set", "train.steps=0", says=("train.steps", "at least 1"))
    refused("--out", new, "--set", "model.heads=3", says=("model.hidden", "model.heads"))
    refused("--out", new, "--set", "model.context=100000", says=("context",))
    refused("--out", new, "--set", "model.vocabulary=300", says=("model.vocabulary", "400"))
    refused("--out", new, "--set", "model.layers=400", "--set", "model.hidden=8192", says=("GB", "train.micro_batch"))
    refused("--out", new, "--set", "train.device=cuda", says=("CUDA",))
    refused("--out", new, "--set", f"data.train={folder}/nothing/train", says=("nothing",))
    refused("--out", whole, says=("--resume",))
    refused("--out", whole, "--resume", "--set", "model.layers=3", says=("model.layers",))
    refused("--out", whole, "--resume", "--set", "train.seed=3", says=("train.seed",))
    refused("--out", whole, "--resume", "--set", f"tokenizer.path={folder}/other.json", says=("tokenizer",))
    assert not (new / "checkpoints").exists()

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    full = folder / "full"
    sauropod("train", recipe, "--out", full, expect=1, says=("checkpoint",), preexec_fn=small_files)
    assert not list(full.glob("checkpoints/*/manifest.json")), "a checkpoint that could not be written looks whole"


def check_other_ways_to_begin(recipe, whole):
    run = folder / "from-weights"
    result = json.loads(sauropod("train", recipe, "--out", run, "--init-from", whole / "checkpoints", "--set",
                                 "train.steps=3", "--set", "train.batch_ramp=[]", "--set", "train.warmup_tokens=0",
                                 "--json"))
    assert result["step"] == 3
    first = losses(run)[0][0]
    assert first < losses(whole)[0][0] - 0.3, f"began with a loss of {first}: not from the trained weights"
    run = folder / "fitted"
    result = json.loads(sauropod("train", recipe, "--out", run, "--set", "train.fit_time=1s", "--set",
                                 "train.batch_ramp=[]", "--json"))
    assert result["ended_by"] == "steps" and result["step"] > 3, result
    result = json.loads(sauropod("train", recipe, "--out", folder / "timed", "--set", "train.max_time=1s", "--set",
                                 "train.steps=1000000", "--json"))
    assert result["ended_by"] == "train.max_time" and result["checkpoint"], result


def check_nothing_left(recipe, whole):
    result = json.loads(sauropod("train", recipe, "--out", whole, "--resume", "--json"))
    assert result["step"] == 40 and result["loss"] is None, result
    assert "nothing was left to do" in sauropod("train", recipe, "--out", whole, "--resume")


def check_all_damaged(recipe, whole):
    """With no checkpoint intact a run doesn't begin anew over what is left of it."""
    run = folder / "all-damaged"
    shutil.copytree(whole, run)
    for file in run.glob("checkpoints/*/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-100])
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "events.jsonl"}
    sauropod("train", recipe, "--out", run, "--resume", expect=1, says=("none of them is intact", "another --out"))
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path} was changed"
    shutil.rmtree(run)


def check_full_output():
    with open("/dev/full", "w") as full:
        for arguments in (("config", "show", source / "recipes/quickstart.toml"),
                          ("checkpoint", "ls", "--json", folder / "whole")):
            done = subprocess.run([program, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 1 and "standard output can't be written" in done.stderr, (arguments, done)


def check_recipes():
    counts = {"gpt2-124m": 124_439_808, "j1-large-7.5b": None, "j1-grande-17b": None, "j1-jumbo-178b": None}
    for name, expected in counts.items():
        path = source / "recipes" / f"{name}.toml"
        result = json.loads(sauropod("train", path, "--set", "train.device=meta", "--json"))
        shape = json.loads(sauropod("config", "show", path, "--json"))
        model = shape.get("values", shape)["model"]
        layers, h, v, t = (model[key] for key in ("layers", "hidden", "vocabulary", "context"))
        assert result["parameters"] == 12 * layers * h * h + 13 * layers * h + (v + t) * h + 2 * h, name
        assert expected in (None, result["parameters"]), (name, result)


def main():
    shutil.rmtree(folder, ignore_errors=True)
    make_inputs()
    whole = folder / "whole"
    recipe = make_recipe("recipe.toml")
    curve = check_whole_run(recipe, whole)
    check_resume(recipe, whole, curve)
    check_kills(recipe, whole, curve, kills=int(os.environ.get("SAUROPOD_TEST_KILLS", "8")))
    check_damage(recipe, whole, curve)
    check_refusals(recipe, whole)
    check_other_ways_to_begin(recipe, whole)
    check_nothing_left(recipe, whole)
    check_all_damaged(recipe, whole)
    check_full_output()
    for family, precision in (("llama", "fp32"), ("jurassic", "bf16")):
        other = make_recipe(f"{family}-{precision}.toml", family, precision)
        run = folder / f"{family}-{precision}"
        check_resume(other, run, check_whole_run(other, run))
    check_recipes()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
