"""Trains the same shapes with Sauropod and with PyTorch, turn by turn, and prints how they compare.

    .venv/bin/python benchmarks/train/run.py --shape a b --precision fp32 --peer compile --pairs 7

Both workers stay warm; each pair is one timed step of each, in alternating order, and before each pair the GEMM rate is
measured. What counts is the median of the pairs' ratios and the lower end of its 95% interval, which comes from order
statistics and so assumes nothing about the noise. README.md describes the shapes and the workers' protocol.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

from shapes import SHAPES

HERE = pathlib.Path(__file__).resolve().parent
OURS = HERE.parent.parent / "build/release/benchmarks/train_benchmark"


class Worker:
    """A process that speaks the protocol; a context manager, so that none outlives the run."""

    def __init__(self, command, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONDONTWRITEBYTECODE="1")
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.about = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"worker ended with code {self.process.wait()}: {' '.join(self.command)}")
        return json.loads(line)

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def median_interval(values, confidence=0.95):
    """(median, low, high): the narrowest pair of order statistics that holds the true median with this confidence."""
    ordered, n = sorted(values), len(values)
    best = 0
    for k in range((n + 1) // 2):
        outside = 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n
        if 1 - outside >= confidence:
            best = k
    return statistics.median(ordered), ordered[best], ordered[n - 1 - best]


def compare(shape_name, precision, peer, options):
    shape = SHAPES[shape_name]
    python = sys.executable
    ours_command = [options.ours, "--shape", shape_name, "--precision", precision,
                    "--recompute", options.recompute, "--loss-chunk", options.loss_chunk]
    theirs_command = [python, HERE / "worker.py", "--model", peer, "--shape", shape_name, "--precision", precision]
    gemm_command = [python, HERE / "gemm_worker.py", "--precision", precision]
    with (Worker(ours_command, options.threads) as ours, Worker(theirs_command, options.threads) as theirs,
          Worker(gemm_command, options.threads) as gemm):
        if ours.about["parameters"] != theirs.about["parameters"]:
            raise SystemExit(f"the models differ: {ours.about} {theirs.about}")
        pairs, gemm_rates = [], []
        for number in range(options.pairs):
            gemm_rates.append(gemm.ask("step")["flops_per_second"])
            order = [ours, theirs] if number % 2 == 0 else [theirs, ours]
            times = {worker: worker.ask("step") for worker in order}
            pairs.append((times[ours], times[theirs]))
        peaks = [worker.ask("quit")["peak_bytes"] for worker in (ours, theirs)]

    for mine, other in pairs:  # random tokens: any model that learns them, or computes another loss, shows here
        expected = math.log(shape.vocabulary)
        for loss in (mine["loss"], other["loss"]):
            if not abs(loss - expected) < 0.05 * expected:
                raise SystemExit(f"a loss of {loss} on random tokens: expected about ln V = {expected:.3f}")
    speed, low, high = median_interval([b["seconds"] / a["seconds"] for a, b in pairs])
    gemm_rate = statistics.median(gemm_rates)

    def side(results, peak):
        rate = statistics.median(r["tokens"] / r["seconds"] for r in results)
        return {"tokens_per_second": rate, "gemm_fraction": rate * shape.flops_per_token() / gemm_rate,
                "peak_bytes": peak}

    return {
        "shape": shape_name, "precision": precision, "peer": peer, "pairs": len(pairs), "threads": options.threads,
        "recompute": options.recompute, "loss_chunk": options.loss_chunk,
        "gemm_flops_per_second": gemm_rate,
        "ours": side([a for a, _ in pairs], peaks[0]), "theirs": side([b for _, b in pairs], peaks[1]),
        "speed_ratio": {"median": speed, "low": low, "high": high}, "memory_ratio": peaks[0] / peaks[1],
        "seconds": {"ours": [a["seconds"] for a, _ in pairs], "theirs": [b["seconds"] for _, b in pairs]},
    }


def row(result):
    ours, theirs, ratio = result["ours"], result["theirs"], result["speed_ratio"]
    return (f"| {result['shape']} | {result['precision']} | {result['peer']} "
            f"| {ours['tokens_per_second']:.0f} ({ours['gemm_fraction']:.0%}) "
            f"| {theirs['tokens_per_second']:.0f} ({theirs['gemm_fraction']:.0%}) "
            f"| {ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f}) "
            f"| {ours['peak_bytes'] / 1e9:.1f} | {theirs['peak_bytes'] / 1e9:.1f} | {result['memory_ratio']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--peer", nargs="+", choices=["eager", "compile", "chunked", "transformers"],
                        help="default: compile, eager, transformers, and for shape c chunked")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ours", type=pathlib.Path, default=OURS, help="our worker (default: %(default)s)")
    parser.add_argument("--recompute", choices=["none", "selective", "full"], default="none",
                        help="ours with train.recompute (default: %(default)s)")
    parser.add_argument("--loss-chunk", type=int, default=0, help="ours with train.loss_chunk (default: its own choice)")
    parser.add_argument("--out", type=pathlib.Path, help="write the results as JSON lines too")
    options = parser.parse_args()
    if options.pairs < 6:
        parser.error("fewer than 6 pairs give no 95% interval of a median")
    if not options.ours.exists():
        raise SystemExit(f"{options.ours} is missing: build it with scripts/bench, or name it with --ours")

    print("Tokens per second (fraction of the GEMM rate); ratios are ours to theirs, with the 95% interval; GB peak.\n")
    print("| shape | precision | peer | ours | theirs | speed | ours GB | theirs GB | memory |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for shape in options.shape:
        for precision in options.precision:
            peers = options.peer or ["compile", "eager", "transformers"] + ["chunked"] * (shape == "c")
            for peer in peers:
                result = compare(shape, precision, peer, options)
                print(row(result), flush=True)
                if options.out:
                    with options.out.open("a") as out:
                        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
