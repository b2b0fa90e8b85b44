#!/usr/bin/env python3
"""train_ranks_test.py with every pair of layouts, in both families."""
import pathlib
import runpy
import sys

sys.argv.append("--all")
runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "train_ranks_test.py"), run_name="__main__")
