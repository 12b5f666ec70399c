"""Writes tests/spec/rope_golden.json: inverse frequencies and attention factors as transformers computes them, for many
configurations and spellings. Run with torch and transformers installed; the versions used are in the file.

    python tools/golden_rope.py tests/spec/rope_golden.json
"""

import copy
import importlib
import json
import logging
import sys

import torch
import transformers

CLASSES = {"qwen3": "Qwen3", "qwen2": "Qwen2", "llama": "Llama"}


def model(model_type="qwen3", **keys):
    config = {
        "model_type": model_type,
        "vocab_size": 64,
        "hidden_size": 256,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    config.update(keys)
    return config


YARN32 = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 32768}
LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}

CASES = {
    "plain, nothing given": model("llama"),
    "plain, theta beside": model(head_dim=128, rope_theta=1000000, max_position_embeddings=40960),
    "plain, theta as a float": model("qwen2", rope_theta=1000000.0, rope_scaling=None),
    "plain, new spelling": model("llama", rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "plain, theta inside wins": model(
        "llama", rope_theta=7.0, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}
    ),
    "plain, empty rope_scaling": model(
        "llama", rope_scaling={}, rope_parameters={"rope_type": "default", "rope_theta": 30000.0}
    ),
    "plain, SmolLM2": model("llama", rope_theta=100000, hidden_size=576, num_attention_heads=9, num_key_value_heads=3),
    "linear, old spelling": model("llama", rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 4}),
    "linear, new spelling": model(
        rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 3.7}, head_dim=64
    ),
    "rope_scaling wins over rope_parameters": model(
        "llama",
        rope_theta=20000.0,
        rope_scaling={"rope_type": "linear", "factor": 2.0},
        rope_parameters={"rope_type": "linear", "factor": 16.0, "rope_theta": 5.0},
    ),
    "dynamic": model("llama", max_position_embeddings=2048, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "dynamic, new spelling": model(
        head_dim=128,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1000000.0, "factor": 8.0},
    ),
    "llama 3.1": model("llama", head_dim=128, rope_theta=500000.0, max_position_embeddings=131072, rope_scaling=LLAMA31),
    "llama 3.2": model(
        "llama",
        head_dim=64,
        rope_theta=500000.0,
        max_position_embeddings=131072,
        rope_scaling={**LLAMA31, "factor": 32.0},
    ),
    "llama3, original beside wins": model(
        "llama",
        rope_theta=500000.0,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        rope_scaling=LLAMA31,
    ),
    "llama3, original falls back": model(
        "llama",
        rope_theta=500000.0,
        max_position_embeddings=2048,
        rope_scaling={k: v for k, v in LLAMA31.items() if k != "original_max_position_embeddings"},
    ),
    "yarn x32": model(head_dim=128, rope_theta=1000000, max_position_embeddings=1048576, rope_scaling=YARN32),
    "yarn, type": model(
        "qwen2",
        rope_theta=1000000.0,
        max_position_embeddings=32768,
        rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    "yarn, new spelling": model(
        head_dim=128,
        max_position_embeddings=40960,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                         "original_max_position_embeddings": 32768},
    ),
    "yarn, original falls back": model(
        "llama", rope_theta=100000.0, max_position_embeddings=8192, rope_scaling={"rope_type": "yarn", "factor": 16.0}
    ),
    "yarn, factor null": model(
        head_dim=64,
        max_position_embeddings=65536,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": None,
                         "original_max_position_embeddings": 4096},
    ),
    "yarn, all keys": model(
        head_dim=96,
        max_position_embeddings=65536,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 16, "beta_slow": 2,
                         "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": False,
                         "original_max_position_embeddings": 4096},
    ),
    "yarn, attention factor": model(
        head_dim=128,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "attention_factor": 1.25,
                         "truncate": False, "original_max_position_embeddings": 4096},
    ),
    "yarn, only mscale": model(
        head_dim=128,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 0.707,
                         "original_max_position_embeddings": 4096},
    ),
    "yarn, zeroes mean defaults": model(
        head_dim=128,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "mscale": 0, "mscale_all_dim": 1,
                         "beta_fast": 0, "beta_slow": 0, "original_max_position_embeddings": 4096},
    ),
    "yarn, tiny head": model(
        head_dim=8, max_position_embeddings=512, rope_theta=10000.0, rope_scaling={**YARN32, "original_max_position_embeddings": 16}
    ),
    "yarn, factor under 1": model(
        head_dim=64, rope_theta=10000.0, rope_scaling={**YARN32, "factor": 0.5}
    ),
}
LENGTHS = {"dynamic": [1, 2048, 2049, 5000, 1048576], "dynamic, new spelling": [4096, 4097, 100000]}


def compute(config, length):
    keys = copy.deepcopy(config)
    model_type = keys.pop("model_type")
    name = CLASSES[model_type]
    loaded = getattr(transformers, name + "Config")(**keys)
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    rotary = getattr(module, name + "RotaryEmbedding")(loaded)
    rotary(torch.zeros(1, 1, 1), torch.tensor([[0, max(length, 1) - 1]]))
    return {
        "length": length,
        "attention_factor": float(rotary.attention_scaling),
        "inv_freq": [float(f) for f in rotary.inv_freq],
    }


def main():
    logging.disable(logging.WARNING)
    cases = [
        {"name": name, "config": config, "results": [compute(config, n) for n in LENGTHS.get(name, [0])]}
        for name, config in CASES.items()
    ]
    result = {"transformers": transformers.__version__, "torch": torch.__version__, "cases": cases}
    with open(sys.argv[1], "w") as out:
        out.write(json.dumps(result, indent=0).replace(",\n", ",") + "\n")


main()
