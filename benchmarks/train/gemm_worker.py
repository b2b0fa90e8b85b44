"""Measures the machine's GEMM rate (1024 × 1024 × 1024, ATen's mm) in the manner of a worker: for each `step` it prints
{"flops_per_second": R}, the best of a third of a second."""
import argparse
import os
import sys
import time

import torch

import shapes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.precision]
    a, b = (torch.randn(1024, 1024).to(dtype) for _ in range(2))
    out = torch.mm(a, b)
    shapes.answer(ready=True, name="GEMM")
    for line in sys.stdin:
        if line.strip() != "step":
            break
        best, end = float("inf"), time.perf_counter() + 1 / 3
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = min(best, time.perf_counter() - start)
        shapes.answer(flops_per_second=2 * 1024**3 / best)


if __name__ == "__main__":
    main()
