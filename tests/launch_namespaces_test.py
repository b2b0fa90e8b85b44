#!/usr/bin/env python3
"""Two hosts on one machine: network namespaces with addresses of their own, two ranks each. A run is launched over both,
one host's ranks are killed, and it goes on with the bits of an undisturbed run.

    launch_namespaces_test.py SAUROPOD     in an empty folder, as root

Exit code 77: network namespaces are not permitted here.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

program = str(pathlib.Path(sys.argv[1]).resolve())
folder = pathlib.Path("work").resolve()
# Names of interfaces have at most 15 letters.
mark = f"sr{os.getpid() % 100000}"
hosts = [f"{mark}a", f"{mark}b"]

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
steps = 150
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
pipeline = 2
"""


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


def make_hosts():
    """A bridge, and two namespaces that are connected to it: 10.213.0.1 is this side, .2 and .3 are the hosts."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        sys.exit(skip("needs root and iproute2"))
    first = ip("netns", "add", hosts[0], check=False)
    if first.returncode != 0:
        sys.exit(skip(first.stderr.strip()))
    ip("netns", "add", hosts[1])
    ip("link", "add", f"{mark}br", "type", "bridge")
    ip("addr", "add", "10.213.0.1/24", "dev", f"{mark}br")
    ip("link", "set", f"{mark}br", "up")
    for number, host in enumerate(hosts):
        ip("link", "add", f"{host}0", "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", f"{host}0", "master", f"{mark}br", "up")
        ip("-n", host, "addr", "add", f"10.213.0.{number + 2}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")
        ip("-n", host, "link", "set", "lo", "up")


def skip(why):
    print("skipped:", why)
    return 77


def remove_hosts():
    for host in hosts:
        ip("link", "del", f"{host}0", check=False)
        ip("netns", "del", host, check=False)
    ip("link", "del", f"{mark}br", check=False)


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
                                        .replace("DATA", str(folder / "data")))


def launch(out):
    log = open(folder / f"{out.name}.log", "w")
    return subprocess.Popen([program, "launch", "--hosts", f"{hosts[0]}:2,{hosts[1]}:2", "--ssh", "ip netns exec",
                             "--address", "10.213.0.1", "--max-restarts", "3", "--", "train",
                             str(folder / "recipe.toml"), "--out", str(out)], stdout=log, stderr=log)


def ranks_on(host):
    found = []
    for process in ip("netns", "pids", host).stdout.split():
        try:
            environment = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(entry.startswith(b"SAUROPOD_RANK=") for entry in environment):
            found.append(int(process))
    return found


def step_of(out):
    try:
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def contents(out):
    newest = sorted((out / "checkpoints").iterdir())[-1]
    shown = sauropod("checkpoint", "show", newest, "--contents").splitlines()
    assert len(shown) > 30, shown
    return newest.name, [line for line in shown[1:] if not line.strip().startswith("seconds:")]


def main():
    shutil.rmtree(folder, ignore_errors=True)
    try:
        make_hosts()
        make_inputs()
        undisturbed, out = folder / "undisturbed", folder / "disturbed"
        code = launch(undisturbed).wait(timeout=300)
        assert code == 0, (folder / "undisturbed.log").read_text()

        launcher = launch(out)
        try:
            end = time.monotonic() + 120
            while step_of(out) < 40:
                assert launcher.poll() is None and time.monotonic() < end, (folder / "disturbed.log").read_text()
                time.sleep(0.02)
            hit = ranks_on(hosts[1])
            assert len(hit) == 2, hit
            for process in hit:
                os.kill(process, signal.SIGKILL)
            assert launcher.wait(timeout=300) == 0, (folder / "disturbed.log").read_text()
        finally:
            launcher.terminate()
            launcher.wait(timeout=60)
        log = (folder / "disturbed.log").read_text()
        assert "starting all ranks again" in log and "killed by SIGKILL" in log, log
        assert contents(out) == contents(undisturbed)
    finally:
        remove_hosts()
    print("two network namespaces, two ranks each: killed, resumed, the same bits")


if __name__ == "__main__":
    main()
