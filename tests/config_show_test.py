#!/usr/bin/env python3
"""sauropod config show: effective values with their origins, as TOML that loads again, as JSON, and the reference.

Usage: config_show_test.py PROGRAM
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

program = sys.argv[1]
root = pathlib.Path(__file__).resolve().parent.parent


def show(*arguments):
    return subprocess.run([program, "config", "show", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def refused(recipe, *arguments, message):
    result = show(recipe, *arguments)
    assert result.returncode == 2 and result.stdout == "", result
    assert message in result.stderr, result.stderr


with tempfile.TemporaryDirectory(prefix="config_show_test.") as scratch:
    scratch = pathlib.Path(scratch)
    recipe = scratch / "r.toml"
    recipe.write_text("[model]\nlayers = 3\n\n[data]\ntrain = ['a', {path = 'b', weight = 0.25}]\n")

    shown = show(recipe, "--set", "train.max_time=90m", "--set", "model.hidden=96")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == "", shown.stderr
    values = tomllib.loads(shown.stdout)
    assert values["model"]["layers"] == 3 and values["model"]["hidden"] == 96
    assert values["train"]["max_time"] == "90m"
    assert values["data"]["train"] == [{"path": "a", "weight": 0.0}, {"path": "b", "weight": 0.25}]
    line = {text.split(" =")[0]: text for text in shown.stdout.splitlines() if " = " in text}
    assert line["layers"].endswith(f"# {recipe}:2"), line["layers"]
    assert line["hidden"].endswith("# --set model.hidden=96"), line["hidden"]
    assert line["heads"].endswith("# default"), line["heads"]

    again = scratch / "again.toml"
    again.write_text(shown.stdout)
    first = json.loads(show(recipe, "--set", "train.max_time=90m", "--set", "model.hidden=96", "--json").stdout)
    second = json.loads(show(again, "--json").stdout)
    assert first["values"] == second["values"] and first["hash"] == second["hash"]
    assert first["origins"]["model.hidden"] == "--set model.hidden=96"
    assert second["origins"]["model.hidden"].startswith(f"{again}:")
    assert json.loads(show(recipe, "--json").stdout)["hash"] != first["hash"]

    refused(recipe, "--set", "model.layer=3", message="did you mean model.layers?")
    refused(recipe, "--set", "model.layers=0", message="between 1 and 1000")
    refused(recipe, "--set", "model.family=lama", message="did you mean llama?")
    refused(recipe, "--set", "layers=3", message="did you mean model.layers?")
    refused(recipe, "--set", "model.layers", message="write --set section.key=value")
    recipe.write_text("[model]\nlayers = 3\nlayers = 4\n")
    refused(recipe, message=f"{recipe}:3: ")
    recipe.write_text("[modle]\nlayers = 3\n")
    refused(recipe, message=f"{recipe}:1: unknown section [modle]; did you mean [model]?")
    assert show(scratch / "none.toml").returncode != 0
    assert show().returncode == 2

    reference = show("--reference")
    assert reference.returncode == 0 and "| `layers` |" in reference.stdout and "SAUROPOD_LOG" in reference.stdout
    for key in first["origins"]:
        section, name = key.rsplit(".", 1)
        after = reference.stdout.split(f"## [{section}]\n", 1)[1].split("\n## ", 1)[0]
        assert f"| `{name}` |" in after, f"{key} is not in the reference"

    recipes = sorted((root / "recipes").glob("*.toml"))
    for path in recipes:
        result = show(path)
        assert result.returncode == 0, result.stderr
    print(f"ok: config show, and {len(recipes)} recipes load")
