#include "train/summary.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/byte_text.h"
#include "base/log.h"
#include "report/loss_curve.h"

namespace megatoken {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A forward pass has the products once, a backward pass once more and twice again for the gradients.
double forward_share(const StepPrice& price) {
  const auto seconds = [&](WorkKind kind) { return price.compute_s[static_cast<std::size_t>(kind)]; };
  const double shared = seconds(WorkKind::memory) + seconds(WorkKind::gemm);
  const double forward = seconds(WorkKind::attention_forward) + shared / 4;
  const double all = seconds(WorkKind::attention_forward) + seconds(WorkKind::attention_backward) + shared;
  return all > 0 ? forward / all : 0.25;
}

bool is_terminal() {
  const char* const term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (term == nullptr || std::string_view(term) != "dumb");
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  constexpr int kUsual = 80;
  return kUsual;
}

std::string counts_text(const PrepareCounts& counts) {
  const std::string text = describe(counts);
  return text.empty() ? "" : "; " + text;
}

}  // namespace

std::string plan_table(const PlannedRun& plan) {
  constexpr std::size_t kShown = 12;
  std::string table =
      fmt::format("plan: device {}, host {} per rank\n", size_text(plan.device_bytes()), size_text(plan.host_bytes()));
  for (std::size_t i = 0; i < std::min(kShown, plan.buffers.size()); ++i) {
    const PlannedBuffer& b = plan.buffers[i];
    table += fmt::format("  {:<58} {:<6} {:>12}\n", b.name, b.place == Place::device ? "device" : "host",
                         size_text(b.bytes));
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
  std::string table =
      fmt::format("step: {:.3f} s predicted; a micro-batch {:.3f} s:", plan.step_time_s, plan.train_price.total_s);
  for (int k = 0; k < kNumWorkKinds; ++k)
    if (const double s = plan.train_price.compute_s[static_cast<std::size_t>(k)]; s > 0)
      table += fmt::format(" {} {:.3f} s,", name_of(static_cast<WorkKind>(k)), s);
  table += fmt::format(" waiting {:.3f} s", plan.train_price.exposed_total_s());
  for (const auto& [reason, s] : plan.train_price.exposed_by_reason)
    if (s >= 0.001 * plan.train_price.total_s) table += fmt::format("\n  waiting for {}: {:.3f} s", reason, s);
  return table;
}

RunReport::RunReport(const Job& job, int64 total_steps, bool speaks)
    : job_(job),
      total_steps_(total_steps),
      speaks_(speaks),
      terminal_(is_terminal() && !job.config.training.disable_progress_bar),
      forward_share_(forward_share(job.plan.train_price)) {}

void RunReport::begin(int64 step, int64 steps_per_epoch) {
  started_ = now_s();
  first_step_ = done_ = step;
  if (!speaks_) return;
  const ModelSpec& m = job_.model;
  const Mesh& mesh = job_.mesh;
  const TrainingOptions& t = job_.config.training;
  for (const std::string& notice : job_.config.notices) log_info("{}", notice);
  log_info("model: {} from {}, {} parameters, {} layers, {} / {} heads of {}, computed in {}, saved in {}",
           m.model_type, job_.weights == nullptr ? "random weights" : job_.model_dir, count_parameters(m), m.num_layers,
           m.num_heads, m.num_kv_heads, m.head_dim, name_of(job_.dtypes.compute), name_of(job_.dtypes.saved));
  if (const ExpertSpec& e = m.experts; e.count > 0)
    log_info("experts: {} of {} a token in {} of {} layers, {} parameters for a token; load-balancing loss: {}",
             e.per_token, e.count, m.sparse_layers(), m.num_layers, count_active_parameters(m),
             e.aux_loss_coef > 0 ? fmt::format("times {}", e.aux_loss_coef) : "none (router_aux_loss_coef sets one)");
  log_info("rope: {}", describe(m.rope));
  log_info("mesh: {} ranks = dp_replicate {} x dp_shard {} x cp {} ({}); attention: {}", mesh.size(), mesh.dp_replicate,
           mesh.dp_shard, mesh.cp, job_.plan.policy.exchange == KvExchange::ring ? "ring" : "allgather",
           job_.on_cuda ? "cuDNN" : "CPU blocks");
  const int64 sequences = t.per_device_train_batch_size * t.gradient_accumulation_steps * mesh.dp();
  log_info("global batch: {} sequences of at most {} tokens = {} x accumulation {} x dp {}; {} tokens at most",
           sequences, job_.train_data->longest(), t.per_device_train_batch_size, t.gradient_accumulation_steps,
           mesh.dp(), sequences * job_.train_data->longest());
  log_info("data: {} rows, {} tokens, {} targets{}", job_.train_data->rows(), job_.train_data->tokens(),
           job_.train_data->targets(), counts_text(job_.train_counts));
  if (job_.eval_data != nullptr)
    log_info("evaluation data: {} rows, {} tokens, {} targets{}", job_.eval_data->rows(), job_.eval_data->tokens(),
             job_.eval_data->targets(), counts_text(job_.eval_counts));
  log_info("steps: {} ({} an epoch){}", total_steps_, steps_per_epoch,
           step > 0 ? fmt::format(", resumed after step {} from {}", step, job_.resume_from) : "");
  log_info("{}", plan_table(job_.plan));
}

void RunReport::draw(bool now) {
  constexpr double kEvery = 0.1;  // seconds
  if (!shows_progress() || (!now && now_s() - drawn_at_ < kEvery)) return;
  drawn_at_ = now_s();
  if (const double left = seconds_left(); left >= 0) progress_.seconds_left = left;
  std::fprintf(stdout, "\r\033[K%s", progress_line(progress_, terminal_columns()).c_str());
  std::fflush(stdout);
  drawn_ = true;
}

void RunReport::clear() {
  if (drawn_) std::fprintf(stdout, "\r\033[K");
  drawn_ = false;
}

// By the steps of this run that are done; during the first one by what is done of it, once that is enough to tell. -1:
// unknown.
double RunReport::seconds_left() const {
  constexpr double kEnough = 0.02;  // of a step
  const double total = static_cast<double>(total_steps_), share = progress_.share * total;
  if (const int64 run = done_ - first_step_; run > 0)
    return (step_started_ - started_) / static_cast<double>(run) * std::max(0.0, total - share);
  const double part = share - static_cast<double>(done_);
  return part < kEnough ? -1 : (now_s() - step_started_) / part * (total - share);
}

void RunReport::begin_phase(std::string phase, int64 parts) {
  progress_.phase = std::move(phase);
  progress_.part = 0;
  progress_.parts = parts;
}

void RunReport::micro_step(int64 step, int64 micro, int64 micro_steps) {
  if (micro == 0) step_started_ = now_s();
  forward_layers_ = backward_layers_ = 0;
  progress_.step = step + 1;
  progress_.steps = total_steps_;
  progress_.micro_batch = micro + 1;
  progress_.micro_batches = micro_steps;
  progress_.share =
      (static_cast<double>(step) + static_cast<double>(micro) / static_cast<double>(std::max<int64>(micro_steps, 1))) /
      static_cast<double>(total_steps_);
  begin_phase("forward", job_.model.num_layers);
  draw(micro == 0);
}

void RunReport::updating() {
  begin_phase("update", 0);
  draw(false);
}

void RunReport::evaluating() {
  forward_layers_ = backward_layers_ = 0;
  progress_.micro_batches = 0;
  begin_phase("evaluation", job_.model.num_layers);
  draw(true);
}

void RunReport::came_to(std::string_view loop) {
  if (!shows_progress()) return;
  const int64 layers = job_.model.num_layers;
  const bool evaluation = progress_.phase == "evaluation";
  if (loop == "layer") {
    // An evaluation has many micro-batches: their layers come one after the other.
    progress_.part = forward_layers_++ % layers + 1;
  } else if (loop == "loss tile") {
    if (!evaluation) begin_phase("loss", 0);
  } else if (loop == "layer backward" || loop == "segment backward/layer backward") {
    if (backward_layers_++ == 0) begin_phase("backward", layers);
    progress_.part = backward_layers_;
  } else {
    return;
  }
  if (!evaluation) {
    const double n = static_cast<double>(layers);
    const double part = backward_layers_ > 0
                            ? forward_share_ + (1 - forward_share_) * static_cast<double>(backward_layers_ - 1) / n
                            : forward_share_ * static_cast<double>(forward_layers_ - 1) / n;
    const double micro = (static_cast<double>(progress_.micro_batch - 1) + part) /
                         static_cast<double>(std::max<int64>(progress_.micro_batches, 1));
    progress_.share = (static_cast<double>(progress_.step - 1) + micro) / static_cast<double>(total_steps_);
  }
  draw(false);
}

void RunReport::step(const nlohmann::ordered_json& line, bool print) {
  done_ = line["step"].get<int64>();
  losses_.push_back(line["loss"].get<double>());
  if (!speaks_ || !print) return;
  clear();
  const std::string mfu = line["mfu"].is_null()
                              ? ""
                              : fmt::format(" TFLOP/s {:.0f} mfu {:.3f}", line["tflops_per_device"].get<double>(),
                                            line["mfu"].get<double>());
  log_info("step {}/{} loss {:.4f} grad_norm {:.4f} lr {:.3e} accuracy {:.4f} tokens/s {:.0f}{} step {:.2f} s", done_,
           total_steps_, line["loss"].get<double>(), line["grad_norm"].get<double>(),
           line["learning_rate"].get<double>(), line["mean_token_accuracy"].get<double>(),
           line["tokens_per_second"].get<double>(), mfu, line["step_time_s"].get<double>());
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
