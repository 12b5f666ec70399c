"""Puts the program's key table into the documents: docs/configuration.md as the program prints it, docs/from_trl.md by the
classes of TRL and accelerate that hold the keys (tests/spec/trl_1_keys.json, made by list_trl_keys.py).

    python3 tools/update_key_docs.py build/megatoken            # writes
    python3 tools/update_key_docs.py build/megatoken --check    # exits 1 and says so when a document is out of date
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
USES = {"honoured": "honoured", "accepted": "no effect", "refused": "refused"}
# Sections of the list of keys, and how a key of each is found in the program's table.
SECTIONS = [
    ("SFTConfig", "SFTConfig", "{}"),
    ("ModelConfig", "ModelConfig", "{}"),
    ("ScriptArguments", "ScriptArguments and DatasetMixtureConfig", "{}"),
    ("DatasetMixtureConfig", None, "{}"),
    ("ClusterConfig", "accelerate: the configuration file", "{}"),
    ("fsdp_config", "accelerate: fsdp_config", "{}"),
    ("parallelism_config", "accelerate: parallelism_config", "{}"),
    ("deepspeed_config", "accelerate: deepspeed_config", "deepspeed_config.{}"),
]


def program(path, what):
    command = [path, "train", f"--help-keys={what}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def escaped(text):
    return text.replace("|", "\\|")


def written(value):
    """A default as a configuration file would have it."""
    if value is None or value == "None":
        return ""
    return json.dumps(value) if isinstance(value, (bool, list)) else str(value)


def same(ours, theirs):
    if ours == theirs:
        return True
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return False


def here(row, key, theirs):
    """The last column: what the key does, why it has no effect or is refused."""
    text = row["meaning"]
    if row["use"] == "refused":
        text += "; fine: " + ", ".join(f"`{v}`" for v in row["fine"]) if row["fine"] else ""
    if row["use"] == "honoured" and row["default"] and not same(row["default"], written(theirs)):
        text += f"{'; ' if text else ''}default here: `{row['default']}`"
    if row["name"] != key and not row["name"].endswith("." + key):
        text += f"{'; ' if text else ''}read as `{row['name']}`"
    return escaped(text)


def from_trl(rows, lists):
    by_name = {row["name"]: row for row in rows}
    by_name |= {alias: row for row in rows for alias in row["aliases"]}
    parts, counts = [], {use: 0 for use in USES}
    for section, title, pattern in SECTIONS:
        lines = []
        for key, theirs in lists[section].items():
            row = by_name.get(pattern.format(key)) or by_name.get(f"{section}.{key}")
            if row is None:
                raise SystemExit(f"{section}: {key} has no row in the program's key table")
            counts[row["use"]] += 1
            default = f"`{written(theirs)}`" if written(theirs) else ""
            lines.append((list(USES).index(row["use"]), f"| `{key}` | {default} | {USES[row['use']]} | {here(row, key, theirs)} |"))
        lines.sort(key=lambda line: line[0])
        if title:
            parts.append(f"### {title}\n\n| key | default there | here | what it does, or why not |\n|---|---|---|---|")
        parts[-1] += "".join("\n" + line for _, line in lines)
    versions = f"TRL {lists['trl']}, transformers {lists['transformers']}, accelerate {lists['accelerate']}"
    head = (
        f"{sum(counts.values())} keys of {versions}: {counts['honoured']} are honoured, {counts['accepted']} have no effect on "
        f"the result,\n{counts['refused']} are refused where they would change it."
    )
    return "\n\n".join([head, *parts])


def with_part(document, name, part):
    """The document with `part` between its marks <!-- NAME: ... --> and <!-- end of NAME -->."""
    text = document.read_text()
    pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n)(.*?)(<!-- end of {name} -->\n)", re.S)
    new, count = pattern.subn(lambda m: f"{m[1]}\n{part.strip()}\n\n{m[3]}", text)
    if count != 1:
        raise SystemExit(f"{document}: no marks <!-- {name}: ... --> and <!-- end of {name} -->")
    return text, new


def main():
    path, check = sys.argv[1], "--check" in sys.argv[2:]
    lists = json.loads((ROOT / "tests/spec/trl_1_keys.json").read_text())
    parts = {
        "docs/configuration.md": program(path, "markdown"),
        "docs/from_trl.md": from_trl(json.loads(program(path, "json")), lists),
    }
    stale = []
    for name, part in parts.items():
        old, new = with_part(ROOT / name, "keys", part)
        if old == new:
            continue
        stale.append(name)
        if not check:
            (ROOT / name).write_text(new)
            print(f"wrote {name}")
    if check and stale:
        raise SystemExit(f"{', '.join(stale)}: out of date; python3 tools/update_key_docs.py build/megatoken")


if __name__ == "__main__":
    main()
