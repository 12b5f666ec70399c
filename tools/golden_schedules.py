"""Learning rates of every schedule of transformers, by its own get_scheduler (part of tools/golden_models.py)."""

import json

import torch
from transformers import get_scheduler
from transformers.trainer_utils import SchedulerType

BASE_LR = 2e-4
LENGTHS = ((20, 0), (20, 5), (13, 3), (1, 0), (7, 7))  # (training steps, warm-up steps)
# What an evaluation would report after each step, for the schedules that look at it.
METRICS = (3.0, 2.5, 2.4, 2.6, 2.6, 2.5, 2.41, 2.45, 2.5, 2.3, 2.31, 2.32, 2.33, 2.34, 2.35, 2.3, 2.29, 2.5, 2.6, 2.7)

KWARGS = {
    "linear": ({},),
    "cosine": ({}, {"num_cycles": 1.25}),
    "cosine_with_restarts": ({}, {"num_cycles": 3}),
    "polynomial": ({}, {"power": 2.0}, {"lr_end": 1e-5, "power": 0.5}),
    "constant": ({},),
    "constant_with_warmup": ({},),
    "inverse_sqrt": ({}, {"timescale": 4}),
    "cosine_with_min_lr": ({"min_lr": 2e-5}, {"min_lr_rate": 0.25}, {"min_lr_rate": 0.1, "num_cycles": 1.5}),
    "cosine_warmup_with_min_lr": (
        {"min_lr": 2e-5},
        {"min_lr_rate": 0.25},
        {"min_lr_rate": 0.1, "warmup_lr_rate": 0.05},
        {"min_lr_rate": 0.1, "num_cycles": 1.0},
    ),
    "warmup_stable_decay": (
        {"num_decay_steps": 4},
        {"num_decay_steps": 4, "min_lr_ratio": 0.1},
        {"num_decay_steps": 6, "warmup_type": "cosine", "decay_type": "linear", "min_lr_ratio": 0.05},
        {"num_decay_steps": 6, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"},
        {"num_decay_steps": 3, "num_stable_steps": 2, "min_lr_ratio": 0.2},
        {"num_decay_steps": 6, "decay_type": "cosine", "num_cycles": 1.5},
    ),
    "reduce_lr_on_plateau": ({}, {"patience": 1, "factor": 0.5}, {"patience": 0, "cooldown": 2, "min_lr": 1e-5}),
    "greedy": ({},),
}
BY_METRIC = ("reduce_lr_on_plateau", "greedy")


def rates(name, kwargs, steps, warmup):
    """The rate of every optimizer step, and the one after the last."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=BASE_LR)
    schedule = get_scheduler(name, optimizer, warmup, steps, dict(kwargs))
    result = [optimizer.param_groups[0]["lr"]]
    for step in range(steps):
        optimizer.step()
        if name in BY_METRIC:
            schedule.step(METRICS[step])
        else:
            schedule.step()
        result.append(optimizer.param_groups[0]["lr"])
    return result


def make():
    assert set(KWARGS) == {t.value for t in SchedulerType}, "transformers has other schedules now"
    lines = []
    for name, variants in KWARGS.items():
        for kwargs in variants:
            for steps, warmup in LENGTHS:
                try:
                    case = {"lr": rates(name, kwargs, steps, warmup)}
                except ArithmeticError as error:  # transformers itself divides by zero here
                    case = {"fails": f"{type(error).__name__}: {error}"}
                if name in BY_METRIC:
                    case["metrics"] = list(METRICS[:steps])
                head = {"name": name, "kwargs": kwargs, "num_training_steps": steps, "num_warmup_steps": warmup}
                lines.append(json.dumps({**head, **case}))
    return '{\n"base_lr": ' + repr(BASE_LR) + ',\n"cases": [\n' + ",\n".join(lines) + "\n]\n}"
