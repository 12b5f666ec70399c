"""Writes tests/ops/golden/adamw.txt: torch.optim.AdamW (single tensor, float32) over some steps.

Run with torch 2.15.0. Line 1: elements, steps, beta1, beta2, eps, weight_decay. Line 2: the first weights. Then for each
step: its learning rate; the gradients; weights, first and second moments after it. Floats are hexadecimal and exact.
"""

import pathlib

import torch

ELEMENTS = 67
STEPS = 8
BETAS = (0.9, 0.95)
EPS = 1e-8
WEIGHT_DECAY = 0.1


def line(tensor):
    return " ".join(float(x).hex() for x in tensor.detach()) + "\n"


def main():
    generator = torch.Generator().manual_seed(7)
    weight = torch.nn.Parameter(torch.randn(ELEMENTS, generator=generator) * 0.02)
    optimizer = torch.optim.AdamW([weight], lr=0.0, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, foreach=False, fused=False)
    out = f"{ELEMENTS} {STEPS} {BETAS[0].hex()} {BETAS[1].hex()} {EPS.hex()} {WEIGHT_DECAY.hex()}\n" + line(weight)
    for step in range(STEPS):
        rate = 1e-3 * (step + 1) / 3 if step < 3 else 1e-3 * 0.7**step
        optimizer.param_groups[0]["lr"] = rate
        gradient = torch.randn(ELEMENTS, generator=generator) * 10.0 ** torch.randint(-12, 2, (ELEMENTS,), generator=generator)
        gradient[0] = 0.0
        weight.grad = gradient
        optimizer.step()
        state = optimizer.state[weight]
        out += rate.hex() + "\n" + line(gradient) + line(weight) + line(state["exp_avg"]) + line(state["exp_avg_sq"])
    path = pathlib.Path(__file__).resolve().parents[1] / "tests/ops/golden/adamw.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(out)


if __name__ == "__main__":
    main()
