#!/usr/bin/env python3
"""train_faults_test.py with thirty faults."""
import pathlib
import runpy
import sys

sys.argv.append("--all")
runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "train_faults_test.py"), run_name="__main__")
