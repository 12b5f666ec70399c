#!/usr/bin/env python3
"""Times PyTorch on the CPU at the shapes of bench/ops_bench.cpp, for comparison.

    python tools/bench_torch_ops.py [--threads 1] [--rounds 10] [--filter TEXT]

Prints name, best milliseconds and GFLOP/s (or GB/s of the bytes the op must move). Times are processor times of the
whole process divided by the threads, which other programs on the machine disturb less than the wall clock.
"""

import argparse
import time
from functools import partial

import torch
import torch.nn.functional as F


def best_time(function, rounds, threads):
    function()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        times.append((time.process_time() - start) / threads)
    return min(times)


def gemm(m, n, k, mode, dtype):
    a = torch.randn((k, m) if mode[0] == "t" else (m, k)).to(dtype)
    b = torch.randn((n, k) if mode[1] == "t" else (k, n)).to(dtype)
    a, b = (a.t() if mode[0] == "t" else a), (b.t() if mode[1] == "t" else b)
    out = torch.empty(m, n, dtype=dtype)
    return lambda: torch.mm(a, b, out=out), 2 * m * n * k


def attention(tokens, heads, kv_heads, head_dim, dtype, backward):
    shapes = [(1, n, tokens, head_dim) for n in (heads, kv_heads, kv_heads)]
    q, k, v = (torch.randn(s).to(dtype).requires_grad_() for s in shapes)
    flops = 2 * tokens * (tokens + 1) * heads * head_dim

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    if not backward:
        return torch.no_grad()(forward), flops
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), 2.5 * flops


def of_graph(inputs, forward, backward):
    if not backward:
        return torch.no_grad()(forward)
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def rms_norm(rows, cols, dtype, backward):
    x = torch.randn(rows, cols).to(dtype).requires_grad_()
    weight = torch.randn(cols).to(dtype).requires_grad_()

    def forward():
        h = x.float()
        return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(dtype)

    # As ops_bench counts them: x, y; x, dy and the float32 gradient read and written.
    size = dtype.itemsize
    return of_graph((x, weight), forward, backward), rows * cols * ((2 * size + 8) if backward else 2 * size)


def norm_rope(rows, cols, dtype, backward):
    head_dim = 64
    x = torch.randn(rows, cols // head_dim, head_dim).to(dtype).requires_grad_()
    weight = torch.randn(head_dim).to(dtype).requires_grad_()
    frequency = torch.randn(head_dim // 2).abs()
    positions = torch.arange(rows).float()

    def forward():
        angle = positions[:, None] * frequency[None, :]
        angle = torch.cat((angle, angle), -1)[:, None, :]
        cosine, sine = angle.cos().to(dtype), angle.sin().to(dtype)
        h = x.float()
        h = weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(dtype)
        first, second = h.chunk(2, -1)
        return h * cosine + torch.cat((-second, first), -1) * sine

    size = dtype.itemsize
    return of_graph((x, weight), forward, backward), rows * cols * ((2 * size + 4) if backward else 2 * size)


def swiglu(rows, cols, dtype, backward):
    x = torch.randn(rows, 2 * cols).to(dtype).requires_grad_()

    def forward():
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    return of_graph((x,), forward, backward), rows * cols * dtype.itemsize * (5 if backward else 3)


def cross_entropy(rows, cols):
    logits = torch.randn(rows, cols).requires_grad_()
    labels = torch.randint(0, cols, (rows,))

    def both():
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return torch.autograd.grad(loss, logits)

    return both, 12 * rows * cols


def adamw(n, fused):
    weight = torch.nn.Parameter(torch.randn(n))
    weight.grad = torch.randn(n)
    return torch.optim.AdamW([weight], fused=fused).step, 28 * n


def embedding_backward(rows, cols):
    table = torch.randn(8192, cols, requires_grad=True)
    ids = torch.randint(0, 8192, (rows,))
    return of_graph((table,), lambda: F.embedding(ids, table), True), 12 * rows * cols


def cases():
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        for mode, shapes in {
            "nt": [(2048, 1024, 256), (2048, 1536, 256), (2048, 256, 768), (1024, 8192, 256), (1024, 1024, 1024)],
            "nn": [(2048, 256, 1024), (1024, 256, 8192)],
            "tn": [(1536, 256, 2048), (256, 256, 8192), (8192, 256, 1024)],
        }.items():
            for m, n, k in shapes:
                yield f"gemm/{name}/{mode}/{m}/{n}/{k}", partial(gemm, m, n, k, mode, dtype)
        for shape in ((2048, 8, 4, 64), (8192, 8, 4, 64), (4096, 2, 1, 128)):
            for word in ("forward", "backward"):
                label = "/".join(map(str, shape))
                yield f"attention_{word}/{name}/{label}", partial(attention, *shape, dtype, word == "backward")
        for function, rows, cols in ((rms_norm, 8192, 256), (norm_rope, 8192, 512), (swiglu, 2048, 768)):
            for word in ("", "_backward"):
                label = f"{function.__name__}{word}/{name}/{rows}/{cols}"
                yield label, partial(function, rows, cols, dtype, word != "")
    for rows, cols in ((1024, 8192), (256, 151936)):
        yield f"cross_entropy/f32/{rows}/{cols}", partial(cross_entropy, rows, cols)
    yield "adamw/f32/8388608 (foreach)", partial(adamw, 8 << 20, False)
    yield "adamw/f32/8388608 (fused)", partial(adamw, 8 << 20, True)
    yield "embedding_backward/8192/256", partial(embedding_backward, 8192, 256)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name, make in cases():
        if args.filter in name:
            function, amount = make()
            seconds = best_time(function, args.rounds, args.threads)
            print(f"{name:45s} {seconds * 1e3:10.3f} ms {amount / seconds / 1e9:8.1f}", flush=True)


if __name__ == "__main__":
    main()
