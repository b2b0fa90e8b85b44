"""The benchmark's shapes, and what is common to its workers (README.md has the protocol)."""
import dataclasses
import json
import os
import sys
import time


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    sequences: int
    tokens: int  # of each sequence
    vocabulary: int

    def flops_per_token(self):
        weights = 12 * self.layers * self.width**2 + self.width * self.vocabulary
        return 6 * weights + 12 * self.layers * self.width * self.tokens


SHAPES = {
    "a": Shape(layers=6, width=384, heads=6, sequences=16, tokens=256, vocabulary=8192),
    "b": Shape(layers=12, width=768, heads=12, sequences=4, tokens=512, vocabulary=50257),
    "c": Shape(layers=4, width=512, heads=8, sequences=4, tokens=512, vocabulary=262144),
}


def answer(**fields):
    print(json.dumps(fields), flush=True)


def peak_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def serve(step, tokens_per_step, name, parameters, warm_up=3):
    """Runs the protocol: step() does one optimizer step and returns its loss as a float."""
    for _ in range(warm_up):
        step()
    answer(ready=True, name=name, parameters=parameters)
    for line in sys.stdin:
        word = line.strip()
        if word == "quit":
            break
        if word != "step":
            sys.exit(f"unknown request: {word!r}")
        start = time.perf_counter()
        loss = step()
        answer(seconds=time.perf_counter() - start, tokens=tokens_per_step, loss=loss)
    answer(peak_bytes=peak_bytes())
    sys.stdout.flush()
    os._exit(0)  # compile's helper processes need no orderly farewell
