"""What the documents contain: commands, YAML, links and headings, with the file and line they stand at."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = ("sh", "bash", "console")
# A command begins so; a mention of one without arguments is no command.
COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:(?:build/)?megatoken (?:train|eval|plan|rehearse|tokenize|inspect|export|doctor|completion)\b"
    r"|\./dev \w|python3? \S+\.py\b|(?:\./)?torchrun(?:\.sh)? |accelerate launch |srun |sbatch |mpirun |mpiexec |kubectl "
    r"|bench/\S+\.sh |build/\w+_bench\b|git clone )"
)


def documents():
    """Every Markdown file that git knows, or that lies in the tree where there is no git."""
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    names = done.stdout.split("\n") if done.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.md")]
    return sorted(ROOT / name for name in names if name and not name.startswith("build") and (ROOT / name).exists())


class Block:
    """A fenced or indented block of code: language ("" where none is said), lines, number of the first line."""

    def __init__(self, language, line):
        self.language, self.line, self.lines = language, line, []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"


def parts(text):
    """(blocks, prose): prose is the text with its blocks blanked, line by line."""
    blocks, prose, fence, blank = [], [], None, True
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"\s*```(\w*)\s*$", line)
        if fence is not None:
            if mark:
                fence = None
            else:
                fence.lines.append(line)
            prose.append("")
            continue
        if mark:
            fence = Block(mark[1], number + 1)
            blocks.append(fence)
            prose.append("")
            continue
        # Indented after a blank line, or more of such a block; list items are indented too, but never by four here.
        if line.startswith("    ") and (blank or (blocks and blocks[-1].line + len(blocks[-1].lines) == number)):
            if not (blocks and blocks[-1].language == "" and blocks[-1].line + len(blocks[-1].lines) == number):
                blocks.append(Block("", number))
            blocks[-1].lines.append(line[4:])
            prose.append("")
        else:
            prose.append(line)
        blank = not line.strip()
    return blocks, "\n".join(prose)


def clean(command):
    """A command as it would be typed: no prompt, remark or brackets around what may be left out."""
    command = re.sub(r"^\$ ", "", command.strip())
    command = re.sub(r"\s{2,}\(.*\)$", "", command)
    command = re.sub(r"(^|\s)#\s.*$", "", command)
    command = re.sub(r"\[--key value \.\.\.\]|\[ARGS\]", "", command)
    command = re.sub(r"\[(--[^\]]*)\]", r"\1", command)
    return re.sub(r"\s+", " ", command).strip()


class Found:
    def __init__(self, document, line, commands):
        self.document, self.line, self.commands = document, line, commands

    def __str__(self):
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def commands(document):
    """Commands of a document: a list of Found, the commands of one block together."""
    blocks, prose = parts(document.read_text())
    found = []
    for block in blocks:
        lines = re.sub(r" *\\\n\s*", " ", block.text).split("\n")
        shell = block.language in SHELLS
        here = [clean(line) for line in lines if (shell and clean(line)) or COMMAND.match(re.sub(r"^\$ ", "", line.strip()))]
        if here:
            found.append(Found(document, block.line, here))
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        command = clean(span[1])
        if re.match(r"torchrun|accelerate|srun|mpi", command) and "megatoken" not in command:
            continue  # another program's
        if COMMAND.match(command) and len(command.split()) > 2:
            found.append(Found(document, prose[: span.start()].count("\n") + 1, [command]))
    return found


def yaml_blocks(document):
    """Blocks that are configurations: said to be YAML, or whose first line is a key with a value."""
    for block in parts(document.read_text())[0]:
        if block.language in ("yaml", "yml") or (
            block.language == "" and re.match(r"[a-z_]+: \S", block.lines[0]) and "model_name_or_path" in block.text
        ):
            yield Found(document, block.line, [block.text])


def headings(text):
    """The anchors that a document's headings have on GitHub."""
    anchors = set()
    for line in parts(text)[1].split("\n"):
        title = re.match(r"#{1,6} +(.*?) *#*$", line)
        if not title:
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title[1]).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        unique, count = slug, 0
        while unique in anchors:
            count += 1
            unique = f"{slug}-{count}"
        anchors.add(unique)
    return anchors


def links(text):
    """(line, target) of every link and picture."""
    prose = parts(text)[1]
    for link in re.finditer(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)|(?:src|href|srcset)=\"([^\"]+)\"", prose):
        yield prose[: link.start()].count("\n") + 1, link[1] or link[2]
