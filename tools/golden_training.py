"""The training part of tools/golden_models.py: ten AdamW steps, by hand and by transformers' Trainer.

Models with experts are trained with the load-balancing loss of each micro-batch, averaged over the window, as TRL adds
it (trl 1.16, SFTTrainer.compute_loss): Trainer itself would add it whole for each micro-batch.

The loop is written out so that what Trainer does is on one page: windows of accumulation that end with the epoch, one
global token mean per window, clipping before the update, the schedule stepped after it, weight decay on everything
but norms and biases. Trainer itself then runs on the same rows and has to agree.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, get_scheduler

IGNORE = -100
# Rows of one epoch, in order; two to a micro-batch, two micro-batches to a step: windows of 4, 4 and 2 rows.
# (tokens, unlabelled tokens at the start): within a window the target counts are very unequal.
ROWS = ((40, 0), (21, 3), (3, 1), (2, 0), (5, 3), (9, 8), (33, 0), (64, 10), (17, 15), (30, 2))
SETTINGS = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "max_steps": 10,
    "learning_rate": 4e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 3,
    "weight_decay": 0.01,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 4.5,
    "train_sampling_strategy": "sequential",
}


AUX_LOSS_COEF = 0.05


def make_rows(vocab, seed):
    """Rows with something to learn: a token is followed by one of two others."""
    generator = torch.Generator().manual_seed(2000 + seed)
    following = torch.randint(0, vocab, (vocab, 2), generator=generator)
    rows = []
    for length, unlabelled in ROWS:
        ids = [int(torch.randint(0, vocab, (1,), generator=generator))]
        while len(ids) < length:
            ids.append(int(following[ids[-1], int(torch.randint(0, 2, (1,), generator=generator))]))
        rows.append({"input_ids": ids, "labels": [IGNORE] * unlabelled + ids[unlabelled:]})
    return rows


def load(directory, dtype=torch.float32, attention="sdpa"):
    """The auxiliary loss of experts, where a case has one, is added by its users."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation=attention).train()
    if has_experts(model):
        model.config.output_router_logits = False
        model.set_experts_implementation("eager")
    return model


def has_experts(model):
    return hasattr(model.config, "num_experts_per_tok")


class BalancingTrainer(Trainer):
    """Trainer with the load-balancing loss averaged over a window's micro-batches."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        model.router_aux_loss_coef = 0.0
        inputs = dict(inputs, output_router_logits=True)
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        loss = loss + AUX_LOSS_COEF * outputs.aux_loss / self.current_gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss


def targets_of(rows):
    return sum(sum(label != IGNORE for label in row["labels"][1:]) for row in rows)


def collate(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    pad = lambda values, fill: values + [fill] * (longest - len(values))  # noqa: E731
    return {
        "input_ids": torch.tensor([pad(r["input_ids"], 0) for r in rows]),
        "labels": torch.tensor([pad(r["labels"], IGNORE) for r in rows]),
        "attention_mask": torch.tensor([pad([1] * len(r["input_ids"]), 0) for r in rows]),
    }


def run_trainer(directory, rows):
    """transformers' Trainer: its log, and the weights it ends with."""
    model = load(directory)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
            optim="adamw_torch",
            seed=0,
            **SETTINGS,
        )
        kind = BalancingTrainer if has_experts(model) else Trainer
        trainer = kind(model=model, args=arguments, train_dataset=rows, data_collator=collate)
        decayed = trainer.get_decay_parameter_names(model)
        trainer.train()
    log = [line for line in trainer.state.log_history if "grad_norm" in line]
    return log, {n: p.detach().clone() for n, p in model.named_parameters()}, decayed


def windows(rows, batch, accumulation):
    """Steps of one epoch: each a list of micro-batches; the last may be short."""
    batches = [rows[i : i + batch] for i in range(0, len(rows), batch)]
    return [batches[i : i + accumulation] for i in range(0, len(batches), accumulation)]


def balance(model, router_logits):
    """The load-balancing loss, a mean over micro-batches, each over all its rows; adds its gradient."""
    loss_of = sys.modules[type(model).__module__].load_balancing_loss_func
    config, total = model.config, 0.0
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    for rows in router_logits:
        layers = tuple(torch.cat(of_layer) for of_layer in zip(*rows))
        for logits in layers:
            p = logits.detach().log_softmax(-1).sort(-1, descending=True).values
            k = config.num_experts_per_tok
            assert float((p[:, k - 1] - p[:, k]).min()) > 1e-5, "a routing hangs on rounding, take another seed"
        aux = loss_of(layers, experts, config.num_experts_per_tok) / len(router_logits)
        (AUX_LOSS_COEF * aux).backward()
        total += float(aux.detach())
    return total


def run_loop(model, rows, decayed):
    """The same, row by row without padding. Returns the log and leaves the trained weights in `model`."""
    s = SETTINGS
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in named if n in decayed], "weight_decay": s["weight_decay"]},
            {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
        ],
        lr=s["learning_rate"],
        betas=(s["adam_beta1"], s["adam_beta2"]),
        eps=s["adam_epsilon"],
    )
    schedule = get_scheduler(s["lr_scheduler_type"], optimizer, s["warmup_steps"], s["max_steps"])
    epoch = windows(rows, s["per_device_train_batch_size"], s["gradient_accumulation_steps"])
    log, tokens = [], 0
    for step in range(s["max_steps"]):
        window = epoch[step % len(epoch)]
        counts = [targets_of(micro) for micro in window]
        total = {"loss": 0.0, "correct": [0] * len(window), "entropy": [0.0] * len(window)}
        router_logits = [[] for _ in window]
        for index, row in ((index, row) for index, micro in enumerate(window) for row in micro):
            ids, labels = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
            extra = {"output_router_logits": True} if has_experts(model) else {}
            outputs = model(input_ids=ids[None], use_cache=False, **extra)
            logits = outputs.logits[0, :-1]
            if has_experts(model):
                router_logits[index].append(outputs.router_logits)
            target = labels[1:]
            at = target != IGNORE
            nll = torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
            (nll / sum(counts)).backward(retain_graph=has_experts(model))
            log_p = logits.detach().log_softmax(-1)[at]
            if len(log_p):
                top = log_p.topk(2, dim=-1).values
                assert float((top[:, 0] - top[:, 1]).min()) > 1e-4, "an arg-max hangs on rounding, take another seed"
            total["loss"] += float(nll.detach())
            total["correct"][index] += int((log_p.argmax(-1) == target[at]).sum())
            total["entropy"][index] += float(-(log_p.exp() * log_p).double().sum())
            tokens += len(ids)
        aux = balance(model, router_logits) if has_experts(model) else None
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), s["max_grad_norm"])
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        count = sum(counts)
        log.append(
            {
                "step": step + 1,
                "loss": total["loss"] / count + (0 if aux is None else AUX_LOSS_COEF * aux),
                "grad_norm": float(norm),
                "learning_rate": rate,
                "num_tokens": tokens,
                "target_tokens": count,
                "micro_batch_targets": counts,
                "mean_token_accuracy": sum(total["correct"]) / count,
                "entropy": sum(total["entropy"]) / count,
                "micro_batch_correct": total["correct"],
                "micro_batch_entropy_sum": total["entropy"],
                **({} if aux is None else {"aux_loss": aux}),
            }
        )
    return log


def worst(ours, theirs, key):
    return max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-30) for a, b in zip(ours, theirs))


def save_trained(model, directory, fused_experts):
    """trained.safetensors, in the layout of the checkpoint."""
    if not has_experts(model):
        weights = {n: p.detach().contiguous() for n, p in model.named_parameters()}
        save_file(weights, directory / "trained.safetensors")
        return
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, save_original_format=not fused_experts)
        shutil.copy(pathlib.Path(scratch) / "model.safetensors", directory / "trained.safetensors")


def make(directory, vocab, seed, fused_experts):
    """Writes train.jsonl and trained.safetensors into `directory`; returns what expected.json says of them."""
    rows = make_rows(vocab, seed)
    theirs, their_weights, decayed = run_trainer(directory, rows)
    model = load(directory)
    log = run_loop(model, rows, decayed)
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}

    assert len(theirs) == len(log) == SETTINGS["max_steps"]
    clipped = [line["grad_norm"] > SETTINGS["max_grad_norm"] for line in log]
    assert any(clipped) and not all(clipped), [line["grad_norm"] for line in log]
    checks = {f"trainer_{key}": worst(log, theirs, key) for key in ("loss", "grad_norm", "learning_rate")}
    checks["trainer_weights"] = max(
        float((weights[n] - their_weights[n]).norm() / their_weights[n].norm()) for n in weights
    )
    for name, value in checks.items():
        assert value < 3e-6, f"{directory.name}: {name} differs by {value}"

    with open(directory / "train.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    save_trained(model, directory, fused_experts)
    not_decayed = sorted(set(weights) - set(decayed))
    short = {name: float(f"{value:.4g}") for name, value in checks.items()}
    settings = dict(SETTINGS, router_aux_loss_coef=AUX_LOSS_COEF) if has_experts(model) else SETTINGS
    return {"settings": settings, "not_decayed": not_decayed, "steps": log, "checks": short}
