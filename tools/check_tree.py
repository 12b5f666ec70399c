"""Checks what is committed: no marks of unfinished work, no paths of somebody's machine, no merge leftovers, no large or
CRLF files, scripts that can be started. Prints file:line: what is wrong; exits 1 if there is anything.

usage: check_tree.py [ROOT]        (ROOT: the checkout, by default the current folder)
"""

import os
import pathlib
import re
import subprocess
import sys

# Written in two halves, so that this file passes its own check.
WORDS = [
    ("a mark of unfinished work", re.compile(r"\b(TO" r"DO|FIX" r"ME|HA" r"CK|X" r"XX)\b")),
    ("a word for unfinished work", re.compile(r"\bnot[ -]implemented\b|\bunimple" r"mented\b|\bst" r"ubs?\b|\bplace" r"holders?\b", re.I)),
    ("a path of one machine", re.compile(r"(?<![\w.$}/-])/((wo" r"rk|ro" r"ot)\b|home/\w)|\.\./sha" r"red\b|/golden-" r"venv\b")),
    ("a merge leftover", re.compile(r"^(<{7}|>{7}|\|{7}) |^={7}$")),
]

# (file pattern, text): a line of such a file that holds the text is right as it is.
ALLOWED = [
    # The checks on planted faults name what they plant.
    (r"^tests/repo/check_tree_test\.py$", ""),
]

# Data may hold any words, and lines that end in any way.
DATA = re.compile(r"^tests/.*\.(json|jsonl|txt|jinja|bin|safetensors|parquet|zst|gz|model)$|^tests/golden/|^LICENSE$")

MAX_BYTES = 2 * 1024 * 1024


def tracked_files(root):
    """The files git tracks; in a tree without git, every file outside build and hidden directories."""
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z"]
    if (root / ".git").exists():
        listing = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        return sorted(os.fsdecode(name) for name in listing.split(b"\0") if name)
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", ".")) or f == ".ci"]
        names += [pathlib.Path(folder, f).relative_to(root).as_posix() for f in files]
    return sorted(names)


def allowed(name, line):
    return any(re.search(pattern, name) and text in line for pattern, text in ALLOWED)


def check_file(root, name):
    path = root / name
    if not path.is_file():  # deleted, but not yet committed so
        return
    content = path.read_bytes()
    if len(content) > MAX_BYTES:
        yield f"{name}:1: {len(content)} bytes, {MAX_BYTES} at most"
    if re.match(rb"#!.*sh\b", content) and not os.access(path, os.X_OK):
        yield f"{name}:1: begins with #! but cannot be executed (chmod +x)"
    if DATA.search(name) or b"\0" in content:
        return
    if b"\r\n" in content:
        yield f"{name}:1: lines end in CR LF"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"{name}:{content[: error.start].count(10) + 1}: is not UTF-8"
        return
    for number, line in enumerate(text.split("\n"), 1):
        for what, pattern in WORDS:
            found = pattern.search(line)
            if found and not allowed(name, line):
                yield f"{name}:{number}: {what}: '{found.group(0)}'"


def check(root):
    names = tracked_files(root)
    if not names:
        return [f"{root}: no files found"]
    return [error for name in names for error in check_file(root, name)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    errors = check(root)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
