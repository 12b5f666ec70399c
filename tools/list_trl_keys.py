"""Lists every key of TRL's SFT script and of accelerate's configuration files, with defaults and versions, for the test
that each has a row in the key table. Run with trl, transformers and accelerate installed.

    python tools/list_trl_keys.py tests/spec/trl_1_keys.json
"""

import dataclasses
import importlib
import json
import sys

import accelerate
import transformers
import trl
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser

CLASSES = [
    ("trl.trainer.sft_config", "SFTConfig"),
    ("trl.trainer.model_config", "ModelConfig"),
    ("trl.scripts.utils", "ScriptArguments"),
    ("trl.scripts.utils", "DatasetMixtureConfig"),
]
# The launch options that are keys of an accelerate configuration's dictionaries.
SECTIONS = {
    "FSDP Arguments": "fsdp_config",
    "DeepSpeed Arguments": "deepspeed_config",
    "ParallelismConfig Arguments": "parallelism_config",
}


def default(field):
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return None
    value = getattr(value, "value", value)
    return value if isinstance(value, (type(None), bool, int, float, str, list)) else str(value)


def main():
    result = {"trl": trl.__version__, "transformers": transformers.__version__, "accelerate": accelerate.__version__}
    for module, name in CLASSES:
        try:
            fields = dataclasses.fields(getattr(importlib.import_module(module), name))
        except ImportError as error:
            print(f"left out: {name} ({error})")
            continue
        result[name] = {f.name: default(f) for f in fields if not f.name.startswith("_")}
    result["ClusterConfig"] = {f.name: default(f) for f in dataclasses.fields(ClusterConfig)}
    for group in launch_command_parser()._action_groups:
        if group.title in SECTIONS:
            result[SECTIONS[group.title]] = {a.dest: a.default for a in group._group_actions}
    with open(sys.argv[1], "w") as out:
        out.write(json.dumps(result, indent=1) + "\n")


main()
