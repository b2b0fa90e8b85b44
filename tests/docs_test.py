#!/usr/bin/env python3
"""The documentation against the project: every relative link leads to a file, and every `sauropod …` command in a page
names a command and options that its --help knows.

    docs_test.py PROGRAM
"""
import functools
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"(?:^|[\s`$|])(?:build/(?:release|cuda)/|\$)?(?:sauropod|S) ((?:[^`#|\n\\]|\\\n)*)", re.M)
program = sys.argv[1]


@functools.cache
def help_of(words):
    result = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else ""


def subcommands(words):
    """The names in the Subcommands part of a command's help."""
    part = re.search(r"(?ims)^subcommands:\s*\n(.*?)(?:\n\n|\Z)", help_of(words))
    return set(re.findall(r"^  ([a-z-]+)", part.group(1), re.M)) if part else set()


def check_command(text):
    """What is wrong with one command line of a page, or None."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        words = text.split()
    path = []
    while words and words[0] in subcommands(tuple(path)):
        path.append(words.pop(0))
    if not path:
        return f"no such command: sauropod {text.strip()[:40]}" if words and re.fullmatch("[a-z][a-z-]*", words[0]) else None
    if subcommands(tuple(path)) and words and re.fullmatch("[a-z][a-z-]*", words[0]):
        return f"no such command: sauropod {' '.join(path)} {words[0]}"
    help_text = help_of(tuple(path))
    for place, word in enumerate(words):
        if word in {"|", ">", "&&", ";"}:
            break
        if word == "--":  # another command follows, unless another program is to run it
            return None if "--program" in words[:place] else check_command(shlex.join(words[place + 1:]))
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and not re.search(re.escape(option.group()) + r"(?![a-z-])", help_text):
            return f"sauropod {' '.join(path)} has no option {option.group()}"
    return None


def main():
    faults = []
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("recipes/*.md")]
    commands = 0
    for page in sorted(pages):
        text = page.read_text()
        name = page.relative_to(ROOT)
        for link in LINK.findall(text):
            if "://" not in link and not (page.parent / link).exists():
                faults.append(f"{name}: leads nowhere: {link}")
        code = "\n".join(re.findall(r"(?ms)^ *```[^\n]*\n(.*?)^ *```", text) + re.findall(r"(?<!`)`([^`]+)`(?!`)", text))
        for match in COMMAND.finditer(code):
            commands += 1
            for alternative in match.group(1).split(", sauropod "):
                fault = check_command(alternative)
                if fault:
                    faults.append(f"{name}: {fault}")
    if commands < 10:
        faults.append(f"only {commands} commands found in the pages: is this test reading them?")
    print("\n".join(faults) or f"docs: {len(pages)} pages, {commands} commands: sound")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
