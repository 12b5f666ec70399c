#include "train/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

#include "base/log.h"
#include "base/signals.h"
#include "data/sampler.h"
#include "device/peak_rates.h"
#include "io/checkpoint_dir.h"
#include "io/file.h"
#include "optim/lr_schedule.h"
#include "report/run_log.h"
#include "report/tensorboard.h"
#include "train/evaluator.h"
#include "train/model_flops.h"
#include "train/process_memory.h"
#include "train/rank.h"
#include "train/run_page.h"
#include "train/saving.h"
#include "train/step_profile.h"
#include "train/summary.h"

namespace megatoken {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

SamplerOptions sampler_options(const Job& job) {
  SamplerOptions options;
  options.rows = job.train_data->rows();
  options.order = job.config.data.sampling == Sampling::random ? RowOrder::random : RowOrder::sequential;
  options.shuffle_dataset = job.config.data.shuffle_dataset;
  options.seed = static_cast<std::uint64_t>(job.config.data.data_seed.value_or(job.config.data.seed));
  options.batch = job.config.training.per_device_train_batch_size;
  options.accumulation = job.config.training.gradient_accumulation_steps;
  options.dp = job.mesh.dp();
  return options;
}

// transformers' directory of event files: output_dir/runs/Dec01_12-30-00_host.
std::string event_dir(const TrainingOptions& training) {
  if (!training.logging_dir.empty()) return training.logging_dir;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 64> time{};
  std::strftime(time.data(), time.size(), "%b%d_%H-%M-%S", &local);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return fmt::format("{}/runs/{}", training.output_dir, time.data());
  return fmt::format("{}/runs/{}_{}", training.output_dir, time.data(), host.data());
}

// A log line as TensorBoard scalars with the tags that transformers gives them: train/loss, eval/loss.
std::vector<std::pair<std::string, double>> scalars(const nlohmann::ordered_json& line) {
  std::vector<std::pair<std::string, double>> found;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step") continue;
    const bool evaluation = key.starts_with("eval_");
    found.emplace_back(evaluation ? "eval/" + key.substr(5) : "train/" + key, value.get<double>());
  }
  return found;
}

class Trainer {
 public:
  Trainer(const Job& job, Group& world)
      : job_(job),
        training_(job.config.training),
        rank_(job, world),
        sampler_(sampler_options(job)),
        total_steps_(training_.max_steps > 0 ? training_.max_steps : sampler_.total_steps(training_.num_train_epochs)),
        peak_flops_(job.on_cuda ? peak_bf16_flops(rank_.device_name()) : std::nullopt),
        schedule_(training_.lr_scheduler_type, training_.lr_scheduler_kwargs, training_.learning_rate,
                  resolve_warmup(training_, total_steps_), total_steps_) {
    if (!job.resume_from.empty()) {
      progress_ = resume(rank_, job.resume_from);
      sampler_.restore(progress_.sampler, job.resume_from);
    }
    if (rank_.first()) {
      log_.emplace(training_.output_dir, job.resume_from.empty() ? -1 : progress_.step);
      page_.emplace(job_, total_steps_, log_->path());
      if (training_.tensorboard) events_.emplace(event_dir(training_));
    }
    shown_step_ = std::min(progress_.step + 2, total_steps_);
    report_.emplace(job_, total_steps_, rank_.first());
    if (report_->shows_progress()) rank_.watch([this](std::string_view loop) { report_->came_to(loop); });
  }

  int run() {
    report_->begin(progress_.step, sampler_.steps_per_epoch());
    write_dropped();
    if (training_.eval_on_start && progress_.step == 0) evaluate_now();
    while (progress_.step < total_steps_) {
      step();
      const bool last = progress_.step == total_steps_;
      const int signal = agreed_signal();
      if (due(training_.eval_strategy, training_.eval_steps.value_or(training_.logging_steps)) && !signal) evaluate_now();
      if (signal || due(training_.save_strategy, training_.save_steps) ||
          (last && training_.save_strategy != Cadence::never)) {
        progress_.sampler = sampler_.state();
        save_checkpoint(rank_, progress_);
        report_->saved(progress_.step);
      }
      if (page_) page_->write_when_due();
      if (signal) {
        if (page_) page_->write();
        report_->stopped(progress_.step);
        return 128 + signal;
      }
    }
    save_final_model(rank_);
    if (page_) page_->write();
    report_->finished(progress_.step);
    return 0;
  }

 private:
  void step() {
    const bool profiled = progress_.step + 1 == training_.profile_step;
    const bool shown = page_ && progress_.step + 1 == training_.profile_step.value_or(shown_step_);
    if (profiled || shown) rank_.record_timeline();
    const auto begin = Clock::now();
    const StepRows rows = sampler_.next();
    if (balanced()) rank_.weigh_balance(*job_.train_data, rows);
    Totals totals;
    for (int64 micro = 0; micro < rows.micro_steps(); ++micro) {
      report_->micro_step(progress_.step, micro, rows.micro_steps());
      rank_.train(*job_.train_data, rows.micro_batch(micro, rank_.dp_rank()), totals);
    }
    report_->updating();
    const std::string where = totals.first_non_finite;
    totals.reduce(rank_.world());
    require_finite(totals.loss + totals.aux_loss, "loss", where);
    if (totals.targets == 0) throw TrainError("step {}: no token has a target", progress_.step + 1);
    const double norm = rank_.gradient_norm() / totals.targets;
    require_finite(norm, "gradient norm", "");

    const double lr = schedule_.at(progress_.step);
    UpdateSettings update;
    update.gradient_scale = clip(norm) / totals.targets;
    update.lr = lr;
    update.beta1 = training_.adam_beta1;
    update.beta2 = training_.adam_beta2;
    update.eps = training_.adam_epsilon;
    update.weight_decay = training_.weight_decay;
    update.step = progress_.step + 1;
    rank_.update(update);
    ++progress_.step;
    progress_.num_tokens += totals.tokens;
    const double seconds = seconds_since(begin);
    write_step(rows, totals, norm, lr, seconds);
    if (!profiled && !shown) return;
    Timeline timeline = rank_.take_timeline();
    if (profiled) write_profile(timeline, seconds);
    if (shown) page_->set_timeline(std::move(timeline), progress_.step, seconds);
  }

  bool balanced() const { return job_.model.experts.aux_loss_coef > 0; }

  void write_profile(const Timeline& timeline, double seconds) {
    const int64 rank = rank_.world().rank();
    const std::string path = fmt::format("{}/trace-step-{}{}.json", training_.output_dir, progress_.step,
                                         rank == 0 ? "" : fmt::format("-rank-{}", rank));
    write_file_atomic(path, trace_json(make_trace(timeline, rank)));
    if (rank_.first()) log_info("profile of step {} (timeline in {}): {}", progress_.step, path, profile_table(timeline, seconds));
  }

  // torch.nn.utils.clip_grad_norm_.
  double clip(double norm) const {
    if (training_.max_grad_norm <= 0) return 1;
    return std::min(1.0, training_.max_grad_norm / (norm + 1e-6));
  }

  // value is the same on all ranks; where is this rank's.
  void require_finite(double value, const char* what, const std::string& where) {
    if (std::isfinite(value)) return;
    std::string places;
    const auto all = rank_.world().all_gather_host(where);
    for (std::size_t r = 0; r < all.size(); ++r)
      if (!all[r].empty()) places += fmt::format("; rank {}: {}", r, all[r]);
    throw TrainError("step {}: {} is {}; nothing was saved{}", progress_.step + 1, what, value, places);
  }

  void write_step(const StepRows& rows, const Totals& totals, double norm, double lr, double seconds) {
    double flops = 0;
    for (const int64 row : rows.rows) flops += 3 * forward_flops(job_.model, job_.train_data->length(row));
    nlohmann::ordered_json line;
    line["step"] = progress_.step;
    line["epoch"] = sampler_.epoch();
    const double coef = job_.model.experts.aux_loss_coef;
    line["loss"] = totals.mean_loss() + coef * totals.mean_aux_loss();
    if (balanced()) line["aux_loss"] = totals.mean_aux_loss();
    line["grad_norm"] = norm;
    line["learning_rate"] = lr;
    line["num_tokens"] = static_cast<int64>(progress_.num_tokens);
    line["target_tokens"] = static_cast<int64>(totals.targets);
    line["mean_token_accuracy"] = totals.correct / totals.targets;
    line["entropy"] = totals.entropy / totals.targets;
    line["step_time_s"] = seconds;
    line["tokens_per_second"] = totals.tokens / seconds;
    const double flops_per_device = flops / seconds / static_cast<double>(job_.mesh.size());
    line["tflops_per_device"] = flops_per_device / 1e12;
    line["mfu"] = nullptr;
    if (peak_flops_) {
      line["mfu"] = flops_per_device / *peak_flops_;
      if (flops_per_device > *peak_flops_)
        log_warning("step {}: {:.0f} TFLOP/s are more than the {:.0f} that {} can do: this step's time or work is not what "
                    "it seems", progress_.step, flops_per_device / 1e12, *peak_flops_ / 1e12, rank_.device_name());
    }
    line["peak_device_bytes"] = rank_.device_bytes();
    line["peak_host_bytes"] = peak_resident_bytes();
    if (log_) log_->write(line);
    const bool spoken = due(training_.logging_strategy, training_.logging_steps) ||
                        (training_.logging_first_step && progress_.step == 1);
    report_->step(line, spoken);
    if (events_ && spoken) events_->add_scalars(progress_.step, scalars(line));
  }

  void evaluate_now() {
    report_->evaluating();
    const nlohmann::ordered_json line = evaluate(rank_, progress_.step);
    if (log_) log_->write(line);
    report_->evaluation(line);
    if (events_) events_->add_scalars(progress_.step, scalars(line));
  }

  // A line for each dataset of which something was dropped, cut off, joined or replaced. Windows of split rows lose
  // nothing and are only said on the terminal.
  void write_dropped() {
    if (!log_ || progress_.step > 0) return;
    for (const auto& [name, counts] : {std::pair("train", &job_.train_counts), std::pair("eval", &job_.eval_counts)}) {
      if (!counts->anything_lost() && !counts->joined_texts && !counts->invalid_utf8 && !counts->prompt_mismatches)
        continue;
      nlohmann::ordered_json line;
      line["dataset"] = name;
      line["dropped_rows"] = counts->dropped_rows;
      line["dropped_tokens"] = counts->dropped_tokens;
      line["truncated_rows"] = counts->truncated_rows;
      line["split_rows"] = counts->split_rows;
      line["joined_texts"] = counts->joined_texts;
      line["joined_rows"] = counts->joined_rows;
      line["invalid_utf8"] = counts->invalid_utf8;
      line["prompt_mismatches"] = counts->prompt_mismatches;
      line["reasons"] = counts->reasons;
      log_->write(line);
    }
  }

  bool due(Cadence cadence, double every) const {
    if (cadence == Cadence::never) return false;
    if (cadence == Cadence::epoch) return progress_.step % sampler_.steps_per_epoch() == 0 || progress_.step == total_steps_;
    return progress_.step % resolve_interval(every, total_steps_) == 0;
  }

  // The signal that any rank has received; the same on all.
  int agreed_signal() {
    double signal = stop_signal();
    rank_.world().all_reduce_host(std::span(&signal, 1), Reduce::max);
    return static_cast<int>(signal);
  }

  const Job& job_;
  const TrainingOptions& training_;
  Rank rank_;
  Sampler sampler_;
  int64 total_steps_;
  std::optional<double> peak_flops_;  // of the device; nothing on the CPU
  LrSchedule schedule_;
  Progress progress_;
  int64 shown_step_ = 0;  // whose timeline the page shows unless profile_step says another
  std::optional<RunLog> log_;
  std::optional<RunPage> page_;
  std::optional<EventFile> events_;
  std::optional<RunReport> report_;
};

}  // namespace

int train_rank(const Job& job, Group& world) {
  set_log_silent(world.rank() != 0);
  if (world.rank() == 0) clean_leftovers(job.config.training.output_dir);
  world.barrier();
  return Trainer(job, world).run();
}

}  // namespace megatoken
