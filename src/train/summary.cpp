#include "train/summary.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/byte_text.h"
#include "base/log.h"
#include "report/loss_curve.h"

namespace megatoken {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string duration_text(double seconds) {
  const auto s = static_cast<int64>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string counts_text(const PrepareCounts& counts) {
  const std::string text = describe(counts);
  return text.empty() ? "" : "; " + text;
}

}  // namespace

std::string plan_table(const PlannedRun& plan) {
  constexpr std::size_t kShown = 12;
  std::string table = fmt::format("plan: device {}, host {} per rank\n", size_text(plan.device_bytes()), size_text(plan.host_bytes()));
  for (std::size_t i = 0; i < std::min(kShown, plan.buffers.size()); ++i) {
    const PlannedBuffer& b = plan.buffers[i];
    table += fmt::format("  {:<58} {:<6} {:>12}\n", b.name, b.place == Place::device ? "device" : "host", size_text(b.bytes));
  }
  if (plan.buffers.size() > kShown) table += fmt::format("  and {} smaller buffers\n", plan.buffers.size() - kShown);
  if (plan.levers.empty()) table += "levers: none needed";
  for (const Lever& lever : plan.levers)
    table += fmt::format("lever: {}: {}; saves {}, costs {:.3f} s (key {})\n", lever.name, lever.reason,
                         size_text(lever.saves_bytes), lever.costs_s, lever.key);
  if (table.back() == '\n') table.pop_back();
  return table;
}

std::string price_table(const PlannedRun& plan) {
  std::string table = fmt::format("step: {:.3f} s predicted; a micro-batch {:.3f} s:", plan.step_time_s, plan.train_price.total_s);
  for (int k = 0; k < kNumWorkKinds; ++k)
    if (const double s = plan.train_price.compute_s[static_cast<std::size_t>(k)]; s > 0)
      table += fmt::format(" {} {:.3f} s,", name_of(static_cast<WorkKind>(k)), s);
  table += fmt::format(" waiting {:.3f} s", plan.train_price.exposed_total_s());
  for (const auto& [reason, s] : plan.train_price.exposed_by_reason)
    if (s >= 0.001 * plan.train_price.total_s) table += fmt::format("\n  waiting for {}: {:.3f} s", reason, s);
  return table;
}

RunReport::RunReport(const Job& job, int64 total_steps, bool speaks)
    : job_(job), total_steps_(total_steps), speaks_(speaks), terminal_(isatty(STDOUT_FILENO) != 0 &&
                                                                    !job.config.training.disable_progress_bar) {}

void RunReport::begin(int64 step, int64 steps_per_epoch) {
  started_ = now_s();
  first_step_ = done_ = step;
  if (!speaks_) return;
  const ModelSpec& m = job_.model;
  const Mesh& mesh = job_.mesh;
  const TrainingOptions& t = job_.config.training;
  for (const std::string& notice : job_.config.notices) log_info("{}", notice);
  log_info("model: {} from {}, {} parameters, {} layers, {} / {} heads of {}, computed in {}, saved in {}", m.model_type,
           job_.weights == nullptr ? "random weights" : job_.model_dir, count_parameters(m), m.num_layers, m.num_heads,
           m.num_kv_heads, m.head_dim, name_of(job_.dtypes.compute), name_of(job_.dtypes.saved));
  log_info("rope: {}", describe(m.rope));
  log_info("mesh: {} ranks = dp_replicate {} x dp_shard {} x cp {} ({}); attention: {}", mesh.size(), mesh.dp_replicate,
           mesh.dp_shard, mesh.cp, job_.plan.policy.exchange == KvExchange::ring ? "ring" : "allgather",
           job_.on_cuda ? "cuDNN" : "CPU blocks");
  const int64 sequences = t.per_device_train_batch_size * t.gradient_accumulation_steps * mesh.dp();
  log_info("global batch: {} sequences of at most {} tokens = {} x accumulation {} x dp {}; {} tokens at most", sequences,
           job_.train_data->longest(), t.per_device_train_batch_size, t.gradient_accumulation_steps, mesh.dp(),
           sequences * job_.train_data->longest());
  log_info("data: {} rows, {} tokens, {} targets{}", job_.train_data->rows(), job_.train_data->tokens(),
           job_.train_data->targets(), counts_text(job_.train_counts));
  if (job_.eval_data != nullptr)
    log_info("evaluation data: {} rows, {} tokens, {} targets{}", job_.eval_data->rows(), job_.eval_data->tokens(),
             job_.eval_data->targets(), counts_text(job_.eval_counts));
  log_info("steps: {} ({} an epoch){}", total_steps_, steps_per_epoch,
           step > 0 ? fmt::format(", resumed after step {} from {}", step, job_.resume_from) : "");
  log_info("{}", plan_table(job_.plan));
}

void RunReport::draw(const std::string& text) {
  if (!speaks_ || !terminal_) return;
  std::fprintf(stdout, "\r\033[K%s", text.c_str());
  std::fflush(stdout);
  drawn_ = true;
}

void RunReport::clear() {
  if (drawn_) std::fprintf(stdout, "\r\033[K");
  drawn_ = false;
}

void RunReport::micro_step(int64 step, int64 micro, int64 micro_steps) {
  constexpr int64 kWidth = 24;
  const double part = static_cast<double>(micro) / static_cast<double>(std::max<int64>(micro_steps, 1));
  const double share = (static_cast<double>(step) + part) / static_cast<double>(total_steps_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const int64 run = done_ - first_step_;
  const std::string left =
      run > 0 ? duration_text((now_s() - started_) / static_cast<double>(run) * static_cast<double>(total_steps_ - done_)) : "?";
  draw(fmt::format("[{}{}] step {}/{} micro-batch {}/{} left {}", std::string(filled, '#'), std::string(kWidth - filled, '.'),
                   step + 1, total_steps_, micro + 1, micro_steps, left));
}

void RunReport::step(const nlohmann::ordered_json& line, bool print) {
  done_ = line["step"].get<int64>();
  losses_.push_back(line["loss"].get<double>());
  if (!speaks_ || !print) return;
  clear();
  const std::string mfu =
      line["mfu"].is_null() ? "" : fmt::format(" TFLOP/s {:.0f} mfu {:.3f}", line["tflops_per_device"].get<double>(), line["mfu"].get<double>());
  log_info("step {}/{} loss {:.4f} grad_norm {:.4f} lr {:.3e} accuracy {:.4f} tokens/s {:.0f}{} step {:.2f} s", done_, total_steps_,
           line["loss"].get<double>(), line["grad_norm"].get<double>(), line["learning_rate"].get<double>(),
           line["mean_token_accuracy"].get<double>(), line["tokens_per_second"].get<double>(), mfu, line["step_time_s"].get<double>());
}

void RunReport::evaluation(const nlohmann::ordered_json& line) {
  if (!speaks_) return;
  clear();
  log_info("evaluation at step {}: loss {:.4f} accuracy {:.4f} over {} targets", line["step"].get<int64>(),
           line["eval_loss"].get<double>(), line["eval_mean_token_accuracy"].get<double>(),
           line["eval_target_tokens"].get<int64>());
}

void RunReport::saved(int64 step) {
  if (!speaks_) return;
  clear();
  log_info("saved {}/checkpoint-{}", job_.config.training.output_dir, step);
}

void RunReport::stopped(int64 step) {
  if (!speaks_) return;
  clear();
  log_info("stopped by a signal after step {}; resume_from_checkpoint: latest goes on", step);
}

void RunReport::finished(int64 step) {
  if (!speaks_) return;
  clear();
  constexpr int kWidth = 64, kHeight = 9;
  if (const std::string curve = draw_curve(losses_, first_step_ + 1, kWidth, kHeight); !curve.empty())
    log_info("training loss\n{}", curve);
  log_info("done after step {}: model in {}, log in {}/trainer_log.jsonl ({})", step, job_.config.training.output_dir,
           job_.config.training.output_dir, duration_text(now_s() - started_));
}

}  // namespace megatoken
