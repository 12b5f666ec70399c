#!/usr/bin/env python3
"""Makes tests/golden: tiny random checkpoints and what transformers computes from them on the CPU.

    python tools/golden_models.py [--out tests/golden] [--only CASE ...]

needs torch, transformers, accelerate and safetensors (versions used: tests/golden/README.md). Every directory
holds a checkpoint as transformers writes it, expected.json, expected.safetensors, and for the training cases
train.jsonl and trained.safetensors. The layout of the expected values is described in tests/golden/README.md.

The script verifies its own numbers while it makes them and stops at the first disagreement:
  - gradients summed over documents without padding = one padded batch through transformers' own loss;
  - float32 = float64 within a third of the tolerance that tests apply;
  - the hand-written training loop = transformers' Trainer (golden_training.py);
  - no arg-max is decided by rounding.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

import golden_schedules
import golden_training

IGNORE = -100
VOCAB = 97
DOCUMENT_LENGTHS = (37, 5, 64, 1, 2)
TOLERANCE = 1e-5  # what the tests allow between float32 results, per tensor


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint. `config` is config.json as a user would find it, spellings of rope included."""

    name: str
    config: dict
    seed: int
    train: bool = False
    store_dtype: torch.dtype = torch.float32
    max_shard_size: str = "5GB"
    foreign_labels: bool = False  # a few labels differ from the ids they stand at
    fused_experts: bool = False  # stored as the modules hold them; else a tensor for each matrix of each expert
    skewed: bool = False  # the first expert is among every token's, the last one never


def qwen3(**changes):
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 28,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "dtype": "float32",
        **changes,
    }


def qwen2(**changes):
    config = qwen3(architectures=["Qwen2ForCausalLM"], model_type="qwen2", **changes)
    for key in ("head_dim", "attention_bias"):
        config.pop(key)
    return config


def llama(**changes):
    config = qwen3(architectures=["LlamaForCausalLM"], model_type="llama", rms_norm_eps=1e-5, **changes)
    if "head_dim" not in changes:
        config.pop("head_dim")
    return config


def experts(config, model_type, **changes):
    """`config` as a mixture of experts: 6 experts, two for a token."""
    name = {"qwen3_moe": "Qwen3Moe", "qwen2_moe": "Qwen2Moe", "mixtral": "Mixtral"}[model_type]
    own = {"num_experts_per_tok": 2, "output_router_logits": False, "router_aux_loss_coef": 0.02}
    if model_type == "mixtral":
        own["num_local_experts"] = 6
    else:
        own.update({"num_experts": 6, "moe_intermediate_size": 20})
    made = dict(config, architectures=[f"{name}ForCausalLM"], model_type=model_type, **own)
    made.update(tie_word_embeddings=False, **changes)
    return made


def old_rope(config, theta, **scaling):
    """The spelling of rope before transformers 5: rope_theta and rope_scaling at the top level, torch_dtype."""
    config = dict(config, rope_theta=theta, torch_dtype=config["dtype"])
    config.pop("rope_parameters")
    config.pop("dtype")
    if scaling:
        config["rope_scaling"] = scaling
    return config


YARN = {  # the ramp ends between frequencies (3.5 of 10), so that rounding it matters
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 32.0,
    "original_max_position_embeddings": 32,
}
# Under softmax a key bias acts through rotation alone: where a frequency hardly turns within a document its gradient
# is rounding noise, which Adam scales up to a full step. The training case with key biases turns every frequency.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 20.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
TURNING = {"rope_type": "default", "rope_theta": 100.0}
SMALL = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20, "intermediate_size": 24}

CASES = (
    Case("qwen3_tied", qwen3(), seed=1, train=True),
    Case(
        "qwen3_untied",
        qwen3(tie_word_embeddings=False, num_key_value_heads=1, head_dim=16, intermediate_size=24),
        seed=2,
        foreign_labels=True,
    ),
    Case(
        "qwen3_bias_linear",
        old_rope(qwen3(attention_bias=True, head_dim=10), 10000.0, type="linear", factor=4.0),
        seed=3,
    ),
    Case("qwen2_untied", old_rope(qwen2(tie_word_embeddings=False), 1000.0), seed=5),
    Case(
        "llama3",
        llama(tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3),
        seed=6,
        train=True,
    ),
    Case(
        "llama_bf16_shards",
        old_rope(llama(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, dtype="bfloat16"), 10000.0),
        seed=7,
        store_dtype=torch.bfloat16,
        max_shard_size="24KB",
    ),
    Case("qwen3_yarn32", qwen3(rope_parameters=YARN, **SMALL), seed=23),
    Case(
        "llama_dynamic",
        old_rope(llama(max_position_embeddings=24, **SMALL), 10000.0, rope_type="dynamic", factor=2.0),
        seed=10,
    ),
    Case(
        "qwen3_moe",
        experts(qwen3(), "qwen3_moe", num_hidden_layers=3, mlp_only_layers=[1], norm_topk_prob=True),
        seed=71,
        train=True,
    ),
    Case(
        "qwen3_moe_fused",
        old_rope(experts(qwen3(), "qwen3_moe", decoder_sparse_step=2, num_experts_per_tok=3), 10000.0),
        seed=32,
        fused_experts=True,
    ),
    Case("mixtral", experts(llama(), "mixtral"), seed=63),
    Case(
        "mixtral_fused",
        experts(llama(), "mixtral", output_router_logits=True),
        seed=74,
        train=True,
        fused_experts=True,
    ),
    Case(
        "qwen2_moe",
        experts(qwen2(), "qwen2_moe", shared_expert_intermediate_size=18, rope_parameters=TURNING),
        seed=35,
        skewed=True,
    ),
)


# ---------------------------------------------------------------------------------------------------- checkpoints


def random_state(model, seed):
    """Weights under which every part matters: uneven attention, norms and biases far from 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            value = 0.3 * noise
        elif parameter.dim() == 1:
            value = 1.0 + 0.5 * noise.clamp(-1.5, 1.5) + (0.2 if "q_norm" in name or "k_norm" in name else 0.0)
        elif "embed_tokens" in name or "lm_head" in name:
            value = 0.3 * noise
        else:
            value = noise / parameter.shape[-1] ** 0.5
            if "mlp.gate." in name or "shared_expert_gate" in name:
                value = 2.0 * value
            if "q_proj" in name or "k_proj" in name:
                value = 1.2 * value
        state[name] = value
    return state


def skew(state):
    """A positive component of every token's residual decides for the first expert and against the last."""
    state["model.embed_tokens.weight"][:, 0] = 3.0
    for name, value in state.items():
        if name.endswith("mlp.gate.weight"):
            value[0, 0], value[-1, 0] = 2.0, -2.0
        elif name.endswith("post_attention_layernorm.weight"):
            value[0] = 1.0


def write_checkpoint(case, directory):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(case.config, indent=2) + "\n")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
    state = random_state(model, case.seed)
    if case.skewed:
        skew(state)
    with torch.no_grad():
        for name, value in state.items():
            model.get_parameter(name).copy_(value)
    model.to(case.store_dtype).save_pretrained(
        directory, max_shard_size=case.max_shard_size, save_original_format=not case.fused_experts
    )
    # save_pretrained respells the configuration: the case is about the one written here.
    (directory / "config.json").write_text(json.dumps(case.config, indent=2) + "\n")
    generation = directory / "generation_config.json"
    generation.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------ documents


def make_documents(case, model):
    """Documents of unequal length with labels in spans, one without any target (a single token).

    Every other token or so is the model's own choice, so that some targets are predicted right.
    """
    generator = torch.Generator().manual_seed(1000 + case.seed)
    documents = []
    for index, length in enumerate(DOCUMENT_LENGTHS):
        ids = torch.randint(0, VOCAB, (1,), generator=generator)
        while len(ids) < length:
            token = torch.randint(0, VOCAB, (1,), generator=generator)
            if torch.rand((), generator=generator) < 0.4:
                with torch.no_grad():
                    token = model(input_ids=ids[None], use_cache=False).logits[0, -1:].argmax(-1)
            ids = torch.cat([ids, token])
        labels = ids.clone()
        if index == 0:
            labels[:9] = IGNORE  # a prompt
        elif index == 2:
            labels[7:19] = IGNORE
            labels[40:41] = IGNORE
            labels[55:] = IGNORE  # unlabelled tail
        if case.foreign_labels and index in (1, 2):
            labels[3:5] = (labels[3:5] + 11) % VOCAB
        documents.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
    return documents


def shifted(labels):
    """labels[i + 1] at position i, as transformers' ForCausalLMLoss aligns them."""
    return torch.cat([labels[1:], labels.new_full((1,), IGNORE)])


def count_targets(documents):
    return sum(int((shifted(torch.tensor(d["labels"])) != IGNORE).sum()) for d in documents)


def forget_rope(model):
    """Dynamic rope keeps the frequencies of the longest document seen; every document here starts afresh."""
    rotary = model.model.rotary_emb
    if "dynamic" in rotary.rope_type:
        fresh = type(rotary)(config=model.config)
        model.model.rotary_emb = fresh


def padded(documents):
    longest = max(len(d["input_ids"]) for d in documents)
    ids = torch.zeros(len(documents), longest, dtype=torch.long)
    labels = torch.full((len(documents), longest), IGNORE)
    mask = torch.zeros(len(documents), longest, dtype=torch.long)
    for row, document in enumerate(documents):
        length = len(document["input_ids"])
        ids[row, :length] = torch.tensor(document["input_ids"])
        labels[row, :length] = torch.tensor(document["labels"])
        mask[row, :length] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


# -------------------------------------------------------------------------------------------------------- measures


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-300))


def gradients(model):
    return {name: p.grad.detach().clone() for name, p in model.named_parameters()}


def norm_of(grads):
    return float(torch.stack([g.double().norm() for g in grads.values()]).norm())


def by_document(model, documents, targets, autocast=False, keep_logits=False):
    """Gradient of the mean token loss over all documents, one document at a time, no padding.

    Returns a record of the whole batch; gradients are added in the parameters' own type.
    """
    model.zero_grad()
    documents_out, logits_out, nll_out = [], [], []
    margin = float("inf")
    for document in documents:
        forget_rope(model)
        ids, labels = torch.tensor(document["input_ids"]), torch.tensor(document["labels"])
        context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        with context:
            logits = model(input_ids=ids[None], use_cache=False).logits[0]
        full = logits if logits.dtype == torch.float64 else logits.float()
        target = shifted(labels)
        at = target != IGNORE
        nll = torch.nn.functional.cross_entropy(full, target, ignore_index=IGNORE, reduction="none")
        (nll.sum() / targets).backward()
        log_p = full.detach().log_softmax(-1)[at]
        entropy = -(log_p.exp() * log_p).sum(-1)
        top = full.detach()[at].topk(2, dim=-1).values
        if at.any():
            margin = min(margin, float((top[:, 0] - top[:, 1]).min()))
        documents_out.append(
            {
                "targets": int(at.sum()),
                "loss_sum": float(nll.detach().double().sum()),
                "correct": int((full.detach().argmax(-1)[at] == target[at]).sum()),
                "entropy_sum": float(entropy.double().sum()),
            }
        )
        logits_out.append(full.detach().clone())
        nll_out.append(nll.detach().clone())
    assert sum(d["targets"] for d in documents_out) == targets
    grads = gradients(model)
    return {
        "documents": documents_out,
        "loss": sum(d["loss_sum"] for d in documents_out) / targets,
        "logits": logits_out,
        "token_nll": nll_out,
        "grads": grads,
        "grad_norm": norm_of(grads),
        "margin": margin,
    }


def as_padded_batch(model, documents, targets, autocast=False):
    """The same gradient as transformers computes it: one padded batch, its own loss and num_items_in_batch."""
    model.zero_grad()
    context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
    with context:
        loss = model(**padded(documents), num_items_in_batch=targets, use_cache=False).loss
    loss.backward()
    return float(loss.detach()), gradients(model)


def auxiliary(model, documents):
    """transformers' load-balancing loss of the documents as one padded batch, and its gradient; how near the router
    comes to another choice; how many tokens each layer's experts get."""
    model.zero_grad()
    batch = {k: v for k, v in padded(documents).items() if k != "labels"}
    out = model(**batch, output_router_logits=True, use_cache=False)
    out.aux_loss.backward()
    grads = {n: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for n, p in model.named_parameters()}
    real = batch["attention_mask"].reshape(-1) > 0
    top = model.config.num_experts_per_tok
    margin, counts = float("inf"), []
    for logits in out.router_logits:
        p = logits.detach().log_softmax(-1)[real].sort(-1, descending=True).values
        margin = min(margin, float((p[:, top - 1] - p[:, top]).min()))
        chosen = logits.detach()[real].topk(top, -1).indices
        counts.append(torch.bincount(chosen.reshape(-1), minlength=logits.shape[-1]).tolist())
    return {"loss": float(out.aux_loss.detach()), "grads": grads, "margin": margin, "tokens_per_expert": counts}


def check_whole_loss(directory, documents, targets, loss, grads, aux, coef=0.05):
    """transformers' own sum of the two losses, and its gradient."""
    model = golden_training.load(directory)
    model.router_aux_loss_coef = coef
    whole = model(**padded(documents), num_items_in_batch=targets, output_router_logits=True, use_cache=False).loss
    whole.backward()
    mine = {n: grads[n] + coef * aux["grads"][n] for n in grads}
    return {
        "whole_loss": abs(float(whole.detach()) - (loss + coef * aux["loss"])) / loss,
        "whole_gradients": max(errors(gradients(model), mine)["parameters"].values()),
    }


def double_precision(model):
    """`model` in float64, with the RMS norms that transformers pins to float32 computed in float64 too."""

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))

    model = model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = forward.__get__(module)
    return model


def errors(grads, reference):
    """||g - r|| / ||r|| per parameter, and over all of them as one vector."""
    result = {name: relative(grads[name], reference[name]) for name in reference}
    difference = torch.stack([(grads[n].double() - reference[n].double()).norm() for n in reference]).norm()
    return {"all": float(difference) / norm_of(reference), "parameters": result}


def bf16_errors(directory, documents, targets, reference, float_loss, can_pad):
    """How far transformers' bfloat16 gradients are from its float32 ones.

    Two ways to run it: bfloat16 weights and activations ("model"), autocast over float32 weights ("autocast"). Of
    each the largest error over eager and SDPA attention, documents one by one (gradients added in float32) and as a
    padded batch: on tensors this small one run alone is partly luck.
    """
    result = {}
    for name, dtype, autocast in (("model", torch.bfloat16, False), ("autocast", torch.float32, True)):
        runs = []
        for attention in ("eager", "sdpa"):
            model = golden_training.load(directory, dtype, attention)
            total = {n: torch.zeros_like(p, dtype=torch.float32) for n, p in model.named_parameters()}
            loss = 0.0
            for document in documents:
                count = count_targets([document])
                if count == 0:
                    continue
                one = by_document(model, [document], count, autocast)
                loss += one["loss"] * count / targets
                for key, grad in one["grads"].items():
                    total[key] += grad.float() * (count / targets)
            runs.append((loss, errors(total, reference)))
            if can_pad:
                loss, grads = as_padded_batch(golden_training.load(directory, dtype, attention), documents, targets, autocast)
                runs.append((loss, errors(grads, reference)))
        result[name] = {
            "loss_error": rounded(max(abs(loss - float_loss) / float_loss for loss, _ in runs)),
            "all": rounded(max(error["all"] for _, error in runs)),
            "all_mean": rounded(sum(error["all"] for _, error in runs) / len(runs)),
            "parameters": {n: rounded(max(error["parameters"][n] for _, error in runs)) for n in reference},
        }
    return result


def rounded(value):
    return float(f"{value:.4g}")


def make_case(case, out):
    directory = out / case.name
    if directory.exists():
        shutil.rmtree(directory)
    write_checkpoint(case, directory)
    documents = make_documents(case, golden_training.load(directory))
    targets = count_targets(documents)
    model = golden_training.load(directory)
    can_pad = "dynamic" not in model.model.rotary_emb.rope_type
    got = by_document(model, documents, targets)

    checks = {}
    precise = by_document(double_precision(golden_training.load(directory)), documents, targets)
    checks["float64_loss"] = abs(got["loss"] - precise["loss"]) / precise["loss"]
    checks["float64_gradients"] = max(errors(got["grads"], precise["grads"])["parameters"].values())
    checks["float64_logits"] = max(relative(a, b) for a, b in zip(got["logits"], precise["logits"]))
    eager = by_document(golden_training.load(directory, attention="eager"), documents, targets)
    checks["eager_gradients"] = max(errors(eager["grads"], got["grads"])["parameters"].values())
    if can_pad:
        loss, grads = as_padded_batch(golden_training.load(directory), documents, targets)
        checks["padded_loss"] = abs(loss - got["loss"]) / got["loss"]
        checks["padded_gradients"] = max(errors(grads, got["grads"])["parameters"].values())
    aux = None
    if golden_training.has_experts(model):
        aux = auxiliary(golden_training.load(directory), documents)
        checks.update(check_whole_loss(directory, documents, targets, got["loss"], got["grads"], aux))
        assert aux["margin"] > 1e-4, f"{case.name}: a routing hangs on rounding ({aux['margin']}), take another seed"
        if case.skewed:
            assert all(c[-1] == 0 and c[0] == max(c) for c in aux["tokens_per_expert"]), aux["tokens_per_expert"]
    for name, value in checks.items():
        assert value < TOLERANCE / 3, f"{case.name}: {name} differs by {value}"
    assert got["margin"] > 1e-4, f"{case.name}: an arg-max hangs on rounding ({got['margin']}), take another seed"

    tensors = {f"grad.{name}": grad for name, grad in got["grads"].items()}
    for index in range(len(documents)):
        tensors[f"logits.{index}"] = got["logits"][index]
        tensors[f"token_nll.{index}"] = got["token_nll"][index]
    if aux:
        tensors.update({f"aux_grad.{name}": grad for name, grad in aux["grads"].items() if grad.abs().max() > 0})
    save_file({k: v.contiguous() for k, v in tensors.items()}, directory / "expected.safetensors")
    loss_sum = sum(d["loss_sum"] for d in got["documents"])
    expected = {
        "case": case.name,
        "documents": [{**given, **made} for given, made in zip(documents, got["documents"])],
        "target_tokens": targets,
        "loss_sum": loss_sum,
        "loss": got["loss"],
        "mean_token_accuracy": sum(d["correct"] for d in got["documents"]) / targets,
        "entropy": sum(d["entropy_sum"] for d in got["documents"]) / targets,
        "grad_norm": got["grad_norm"],
        "bf16": bf16_errors(directory, documents, targets, got["grads"], got["loss"], can_pad),
        "checks": {name: rounded(value) for name, value in checks.items()},
    }
    if aux:
        expected["aux_loss"] = aux["loss"]
        expected["tokens_per_expert"] = aux["tokens_per_expert"]
    if case.train:
        expected["training"] = golden_training.make(directory, VOCAB, case.seed, case.fused_experts)
    (directory / "expected.json").write_text(dump(expected) + "\n")
    size = sum(f.stat().st_size for f in directory.iterdir())
    worst = {k: f"{v:.1e}" for k, v in checks.items()}
    print(f"{case.name}: {size} bytes, loss {got['loss']:.6f}, grad_norm {got['grad_norm']:.4f}, checks {worst}")


def dump(value, indent=0):
    """JSON with one key a line, and lists of numbers on one line."""
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        inner = ",\n".join(f"{pad}{json.dumps(k)}: {dump(v, indent + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(pad + dump(v, indent + 1) for v in value) + "\n" + " " * indent + "]"
    return json.dumps(value)


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests" / "golden")
    parser.add_argument("--only", nargs="*", help="names of cases (default: all, and schedules.json)")
    args = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    unknown = set(args.only or ()) - {c.name for c in CASES} - {"schedules"}
    if unknown:
        parser.error(f"unknown case: {', '.join(sorted(unknown))}")
    for case in CASES:
        if not args.only or case.name in args.only:
            make_case(case, args.out)
    if not args.only or "schedules" in args.only:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "schedules.json").write_text(golden_schedules.make() + "\n")


if __name__ == "__main__":
    main()
