"""Checks the arrows between the modules of src/ (docs: CONTRIBUTING.md), the places of foreign headers, include cycles
and the length of files. Prints each violation as file:line: what is wrong; exits 1 if there is any.

usage: check_arrows.py [ROOT]        (ROOT: the checkout, by default the current folder)
"""

import collections
import pathlib
import re
import sys

# What each module includes directly; it may also include whatever those may (the transitive closure, computed below).
# A module's own subfolders belong to it. Left out on purpose: plan doesn't know model, which hands its counting in as a
# callback; optim doesn't know model either: it sees shards.
ARROWS = {
    "base": [],
    "spec": ["base"],
    "schedule": ["spec"],
    "plan": ["schedule"],
    "tensor": ["base"],
    "device": ["tensor"],
    "ops": ["device"],
    "comm": ["device"],
    "memory": ["plan", "device"],
    "step": ["spec", "schedule", "ops", "comm", "memory"],
    "attention": ["ops", "schedule", "step"],
    "parallel": ["comm", "ops", "memory", "step"],
    "io": ["base"],
    "model": ["step", "ops", "attention", "parallel", "io"],
    "optim": ["step", "ops", "parallel"],
    "text": ["io"],
    "data": ["text"],
    "report": ["base"],
    "train": ["model", "optim", "data", "report"],
    "cli": ["train"],
}

# These decide and read: they run on any machine, so they never see a device, whatever the table above becomes.
DEVICE_FREE = ["base", "spec", "schedule", "plan", "io", "text", "data", "report"]
DEVICE = ["device", "ops", "comm", "memory", "step", "attention", "parallel"]

# Headers of other projects that have one place. (what, pattern of the include, pattern of the files that may have it)
PLACES = [
    (
        "CUDA header",
        r"(cuda|cublas|cudnn|nccl|nvrtc|nvml|nvtx3|nvToolsExt|cutlass|cute/|cub/|thrust/|cooperative_groups|curand|cupti)",
        r"(_cuda(_test)?\.(h|cpp|cu|cuh)|\.cu|\.cuh)$|^src/\w+/cuda/|^src/comm/nccl/|^bench/",
    ),
    ("Gloo header", r"gloo/", r"^src/comm/gloo/"),
    ("yaml-cpp header", r"yaml-cpp/", r"^src/spec/"),
]

MAX_LINES = 600
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
OTHER_SUFFIXES = {".py", ".sh", ".cmake"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
BACKEND_CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\bMEGATOKEN_(CUDA|GLOO|NCCL)\b")
LINKED = re.compile(r"^\s*megatoken_module\((\w+)([^)]*)\)")


def closure(arrows):
    """Every module's allowed modules, itself included. A cycle in the table is an error."""
    allowed = {}

    def visit(module, path):
        if module in path:
            raise ValueError("the table of arrows has a cycle: " + " -> ".join(path + [module]))
        if module not in allowed:
            allowed[module] = {module}.union(*(visit(used, path + [module]) for used in arrows[module]))
        return allowed[module]

    for module in arrows:
        visit(module, [])
    return allowed


def table_errors(arrows):
    allowed = closure(arrows)
    return [
        f"tools/check_arrows.py:1: the table lets '{module}' see '{device}', but {module} never sees a device"
        for module in DEVICE_FREE
        for device in DEVICE
        if device in allowed[module]
    ]


def read_lines(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def without_comments(lines):
    """The lines with the text of // and /* */ comments blanked; line numbers stay."""
    inside = False
    for line in lines:
        kept = ""
        while line:
            if inside:
                end = line.find("*/")
                if end < 0:
                    break
                line, inside = line[end + 2 :], False
            else:
                opened, rest = line.find("/*"), line.find("//")
                if opened >= 0 and (rest < 0 or opened < rest):
                    kept, line, inside = kept + line[:opened] + " ", line[opened + 2 :], True
                else:
                    kept += line if rest < 0 else line[:rest]
                    break
        yield kept


def includes(path):
    """(line number, '<' or '"', included name) of each include."""
    # A path in an include may hold "//" only by mistake, so blanking comments first is safe.
    for number, line in enumerate(without_comments(read_lines(path)), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found.group(1), found.group(2)


def source_files(root, folder):
    return sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCE_SUFFIXES and p.is_file())


def check_src(root, arrows):
    allowed = closure(arrows)
    src = root / "src"
    for path in source_files(root, "src"):
        name = path.relative_to(root).as_posix()
        parts = path.relative_to(src).parts
        module = parts[0] if len(parts) > 1 else None
        if module is None or module not in arrows:
            yield f"{name}:1: stands in no known module; the modules are in tools/check_arrows.py"
            continue
        for number, line in enumerate(without_comments(read_lines(path)), 1):
            if BACKEND_CONDITION.match(line):
                yield f"{name}:{number}: a missing backend is a file of its own (*_absent), not a preprocessor condition"
        for number, quote, target in includes(path):
            first = target.split("/")[0]
            if quote == '"' and not (src / target).is_file():
                yield f'{name}:{number}: "{target}" is no file of src/ (write the path from src/: "module/file.h")'
            elif (quote == '"' or (src / target).is_file()) and first not in allowed[module]:
                yield (
                    f"{name}:{number}: {module} may not include {first} ({target}); "
                    f"it may include {', '.join(sorted(allowed[module] - {module})) or 'nothing'}"
                )


def check_places(root):
    for folder in ("src", "tests", "bench"):
        for path in source_files(root, folder):
            name = path.relative_to(root).as_posix()
            for number, quote, target in includes(path):
                if quote == '"' and (root / "src" / target).is_file():
                    continue
                for what, pattern, home in PLACES:
                    if re.match(pattern, target) and not re.search(home, name):
                        yield f"{name}:{number}: {what} <{target}> outside its place ({home})"


def check_cycles(root):
    """Headers that include each other, reported once per cycle at its first file's include."""
    src = root / "src"
    graph = collections.defaultdict(list)
    for path in source_files(root, "src"):
        node = path.relative_to(src).as_posix()
        graph[node] = [(number, target) for number, _, target in includes(path) if (src / target).is_file()]

    done, stack = set(), []

    def visit(node):
        stack.append(node)
        for number, target in graph[node]:
            if target in stack:
                cycle = stack[stack.index(target) :] + [target]
                yield f"src/{node}:{number}: include cycle: {' -> '.join(cycle)}"
            elif target not in done:
                yield from visit(target)
        stack.pop()
        done.add(node)

    for node in sorted(graph):
        if node not in done:
            yield from visit(node)


def check_linked(root, arrows):
    """What src/CMakeLists.txt links must follow the arrows as well."""
    allowed = closure(arrows)
    path = root / "src" / "CMakeLists.txt"
    if not path.is_file():
        return
    for number, line in enumerate(read_lines(path), 1):
        found = LINKED.match(line)
        if not found:
            continue
        module = found.group(1)
        if module not in arrows:
            yield f"src/CMakeLists.txt:{number}: unknown module {module}"
            continue
        for used in re.findall(r"\bmegatoken_(\w+)", found.group(2)):
            if used in arrows and used not in allowed[module]:
                yield f"src/CMakeLists.txt:{number}: {module} may not link {used}"


def check_lengths(root):
    for folder in ("src", "tests", "bench", "tools", "cmake", "examples", "."):
        listing = (root / folder).glob("*") if folder == "." else (root / folder).rglob("*")
        for path in sorted(listing):
            is_code = path.suffix in SOURCE_SUFFIXES | OTHER_SUFFIXES or path.name in ("CMakeLists.txt", "dev")
            if is_code and path.is_file():
                count = len(read_lines(path))
                if count > MAX_LINES:
                    yield f"{path.relative_to(root).as_posix()}:{count}: {count} lines, {MAX_LINES} at most"


def check(root, arrows=None):
    arrows = ARROWS if arrows is None else arrows
    return [
        *table_errors(arrows),
        *check_src(root, arrows),
        *check_places(root),
        *check_cycles(root),
        *check_linked(root, arrows),
        *check_lengths(root),
    ]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    if not (root / "src").is_dir():
        print(f"{root}: no src/ here", file=sys.stderr)
        return 2
    errors = check(root)
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
