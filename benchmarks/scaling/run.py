"""How well two or more ranks, each on a core of its own, do beside as many processes that don't communicate.

    .venv/bin/python benchmarks/scaling/run.py --pairs 7

README.md beside this file describes what is measured.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "train"))
from run import median_interval  # noqa: E402

PROGRAM = HERE.parent.parent / "build/release/benchmarks/scaling_benchmark"


class Ranks:
    """Processes pinned to one core each: ranks of one run, or (together=False) each a run of its own."""

    def __init__(self, count, arguments, together=True):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        cores = sorted(os.sched_getaffinity(0))
        self.processes = []
        for rank in range(count):
            environment = dict(os.environ, OMP_NUM_THREADS="1")
            if together and count > 1:
                environment.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                                   LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            core = {cores[rank % len(cores)]}
            self.processes.append(subprocess.Popen(
                [str(PROGRAM), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment, preexec_fn=lambda core=core: os.sched_setaffinity(0, core)))
        self.read()

    def read(self):
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            raise SystemExit("a rank ended early; its message is above")
        return [json.loads(line) for line in lines]

    def ask(self, word):
        for process in self.processes:
            process.stdin.write(word + "\n")
            process.stdin.flush()
        return self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def step(ranks):
    answers = ranks.ask("step")
    return max(a["seconds"] for a in answers), max(a["exposed"] for a in answers)


def weak(options, zero):
    """The same work for each rank, with communication and without, turn by turn."""
    arguments = ["--shape", options.shape, "--precision", options.precision]
    with (Ranks(options.ranks, [*arguments, "--zero", zero]) as ranks,
          Ranks(options.ranks, arguments, together=False) as alone):
        with_it, without, exposed = [], [], []
        for pair in range(options.pairs):
            for side in ([ranks, alone] if pair % 2 == 0 else [alone, ranks]):
                seconds, waited = step(side)
                if side is ranks:
                    with_it.append(seconds)
                    exposed.append(waited / seconds)
                else:
                    without.append(seconds)
        peaks = [side.ask("quit")[0]["peak_bytes"] for side in (ranks, alone)]
    return {"kind": "weak", "zero": zero, "efficiency": median_interval([b / a for a, b in zip(with_it, without)]),
            "seconds": statistics.median(with_it), "alone": statistics.median(without),
            "exposed": statistics.median(exposed), "peaks": peaks}


def strong(options, zero):
    """One batch on all ranks, beside the whole batch on one core."""
    arguments = ["--shape", options.shape, "--precision", options.precision]
    with (Ranks(options.ranks, [*arguments, "--zero", zero, "--sequences", 4]) as ranks,
          Ranks(1, [*arguments, "--sequences", 4 * options.ranks]) as one):
        times = [(step(ranks)[0], step(one)[0]) for _ in range(options.pairs)]
    return {"kind": "strong", "zero": zero,
            "efficiency": median_interval([b / a / options.ranks for a, b in times]),
            "seconds": statistics.median(a for a, _ in times), "alone": statistics.median(b for _, b in times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--shape", choices=["124m", "small"], default="124m")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--out", type=pathlib.Path, help="write the results as JSON lines too")
    options = parser.parse_args()
    if options.pairs < 6:
        parser.error("fewer than 6 pairs give no 95% interval of a median")
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is missing: see README.md")
    print(f"{options.ranks} ranks, {options.shape}, {options.precision}, 4 × 512 tokens a rank and step")
    print("| scaling | optimizer | efficiency (95%) | step, s | without, s | exposed | peak GB of a rank, alone |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for measure in (weak, strong):
        for zero in (0, 1):
            r = measure(options, zero)
            median, low, high = r["efficiency"]
            peaks = " | ".join([f"{r['exposed']:.1%}", "{:.2f}, {:.2f}".format(*(p / 1e9 for p in r["peaks"]))]) \
                if "peaks" in r else " | "
            print(f"| {r['kind']} | {'ZeRO-1' if zero else 'whole'} | {median:.1%} ({low:.1%}–{high:.1%}) "
                  f"| {r['seconds']:.2f} | {r['alone']:.2f} | {peaks} |", flush=True)
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps(r) + "\n")


if __name__ == "__main__":
    main()
