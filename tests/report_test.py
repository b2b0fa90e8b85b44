#!/usr/bin/env python3
"""sauropod report: the command, and the page as a browser draws it (where chromium is installed).

Usage: report_test.py PROGRAM
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

program = sys.argv[1]
EVIL = "</script><script>document.title='taken over'</script><img src=x onerror=\"document.title='taken over'\">"


def write_run(folder):
    folder.mkdir()
    lines = [{"step": s, "loss": 4 + 5 / s, "grad_norm": 1 + 1 / s, "learning_rate": 1e-3 * (100 - s), "tokens": 512 * s,
              "tokens_per_second": 5e4, "gemm_fraction": 0.6, "validation_bits_per_byte": 3 - s / 100}
             for s in range(1, 101)]
    lines[49]["skipped"] = True
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run.toml").write_text("[model]\nlayers = 2 # " + EVIL + "\n")
    (folder / "events.jsonl").write_text(json.dumps(
        {"time": "2026-01-02T03:04:05.678Z", "event": "started", "parameters": 123456, "note": EVIL}) + "\n")
    (folder / "samples.json").write_text(json.dumps([{"prompt": EVIL, "text": " and so on"}]))
    (folder / "compressors.json").write_text(json.dumps({"zstd -19": 2.5, EVIL: 2.2}))


def run(*arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def browse(chromium, page, profile):
    """The page's HTML after its script has run."""
    result = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={profile}", "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


with tempfile.TemporaryDirectory(prefix="report_test.") as scratch:
    scratch = pathlib.Path(scratch)
    folder = scratch / "first run"
    write_run(folder)

    result = run("report", folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{folder}/report.html\n", result.stdout
    result = run("report", "--json", folder)
    assert json.loads(result.stdout) == {"report": f"{folder}/report.html"}, result.stdout

    empty = scratch / "empty"
    empty.mkdir()
    result = run("report", empty)
    assert result.returncode == 2 and "holds no run" in result.stderr, result
    assert not any(empty.iterdir())
    assert run("report").returncode == 2
    if os.geteuid() != 0:  # root may write anywhere
        folder.chmod(0o500)
        result = run("report", folder)
        folder.chmod(0o700)
        assert result.returncode == 1 and "permission" in result.stderr, result

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("left out: the page in a browser (chromium is not installed)")
        sys.exit(0)
    html = browse(chromium, folder / "report.html", scratch / "profile")
    body = html[html.index("<body"):]
    assert "<title>first run · Sauropod</title>" in html, "the title was changed"
    assert len(re.findall(r"<figure", body)) == 5, "five charts"
    assert len(re.findall(r'<path class="line" d="M[^"]{100,}', body)) == 5, "a curve in each"
    assert len(re.findall(r'class="skip"', body)) == 5, "the skipped step is marked in each"
    assert "<img" not in body and len(re.findall(r"<script", body)) == 2, "text became markup"
    assert "&lt;img src=x" in body[body.index('class="sample"'):], "the sample is shown as text"
    assert "123.5K" in body or "123K" in body, "the parameters are shown"
    print("ok: the command and the page in a browser")
