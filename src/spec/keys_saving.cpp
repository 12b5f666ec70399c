// Keys of evaluation, logging and checkpoints.
#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

double steps_or_fraction(const KeyValue& value) {
  const double steps = value.number(1e-12, 1e12);
  if (steps >= 1 && steps != static_cast<double>(static_cast<int64>(steps)))
    value.expected("a whole number of steps, or a fraction under 1");
  return steps;
}

Cadence interval(const KeyValue& value) {
  if (value.json() == "best") value.fail("best is refused: checkpoints aren't chosen by a metric");
  return value.choice<Cadence>({{"no", Cadence::never}, {"steps", Cadence::steps}, {"epoch", Cadence::epoch}});
}

constexpr std::string_view kHub = "nothing is sent to the Hub";
constexpr std::string_view kTracker = "no tracker is told; the run is in trainer_log.jsonl, report.html and runs/";
constexpr std::string_view kOneLog = "rank 0 speaks for all";

// tensorboard, all: event files. none: no event files. Other trackers are not told, and get event files instead.
void set_report_to(RunConfig& config, const KeyValue& value) {
  bool none = !value.is_null() && !value.texts().empty();
  for (const std::string& name : value.is_null() ? std::vector<std::string>{} : value.texts()) {
    if (name != "none") none = false;
    if (name != "none" && name != "all" && name != "tensorboard")
      config.notices.push_back(fmt::format("accepted, no effect: report_to {} ({})", name, kTracker));
  }
  config.training.tensorboard = !none;
}

const KeyInfo kRows[] = {
    honoured("output_dir", text, "trainer_output", "where checkpoints, the log, the report and the model go",
             [](RunConfig& c, const KeyValue& v) {
               if (v.is_null()) return;
               c.training.output_dir = v.text();
               if (c.training.output_dir.empty()) v.expected("a directory");
             })
        .or_null(),
    honoured("eval_strategy", choice, "no", "when to evaluate: no, steps or epoch",
             [](RunConfig& c, const KeyValue& v) { c.training.eval_strategy = interval(v); })
        .also("evaluation_strategy"),
    honoured("eval_steps", number, "",
             "optimizer steps between evaluations; a fraction of all when under 1; not set: logging_steps",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.training.eval_steps = steps_or_fraction(v);
             })
        .or_null(),
    honoured("eval_on_start", flag, "false", "evaluate before the first step",
             [](RunConfig& c, const KeyValue& v) { c.training.eval_on_start = v.flag(); }),
    honoured("logging_strategy", choice, "steps", "when the terminal gets a line: no, steps or epoch",
             [](RunConfig& c, const KeyValue& v) { c.training.logging_strategy = interval(v); }),
    honoured("logging_steps", number, "10", "steps between lines in the terminal (trainer_log.jsonl has every step)",
             [](RunConfig& c, const KeyValue& v) { c.training.logging_steps = steps_or_fraction(v); }),
    honoured("logging_first_step", flag, "false", "a line for the first step too",
             [](RunConfig& c, const KeyValue& v) { c.training.logging_first_step = v.flag(); }),
    honoured("report_to", list, "", "none: no TensorBoard files; otherwise they are written to logging_dir", set_report_to)
        .or_null(),
    honoured("logging_dir", text, "", "where TensorBoard files go; not set: output_dir/runs/<time>_<host>",
             [](RunConfig& c, const KeyValue& v) { c.training.logging_dir = v.text(); })
        .or_null(),
    honoured("profile_step", integer, "",
             "a step, counted from 1: its time by op goes to the terminal, its streams and buffers to "
             "output_dir/trace-step-N.json (chrome://tracing, Perfetto)",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.training.profile_step = v.integer(1, int64{1} << 40);
             })
        .or_null(),
    honoured("disable_tqdm", flag, "", "true: no progress bar",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.training.disable_progress_bar = v.flag();
             })
        .or_null(),
    honoured("save_strategy", choice, "steps", "when to write a checkpoint: no, steps or epoch",
             [](RunConfig& c, const KeyValue& v) { c.training.save_strategy = interval(v); }),
    honoured("save_steps", number, "500", "optimizer steps between checkpoints; a fraction of all when under 1",
             [](RunConfig& c, const KeyValue& v) { c.training.save_steps = steps_or_fraction(v); }),
    honoured("save_total_limit", integer, "", "checkpoints to keep; older ones are deleted",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.training.save_total_limit = v.integer(1, 1 << 30);
             })
        .or_null(),
    honoured("save_only_model", flag, "false", "checkpoints without optimizer state; they can't be resumed",
             [](RunConfig& c, const KeyValue& v) { c.training.save_only_model = v.flag(); }),
    honoured("resume_from_checkpoint", text, "", "a checkpoint directory, or true: the newest of output_dir",
             [](RunConfig& c, const KeyValue& v) {
               const bool is_flag = v.json().is_boolean();
               const std::string path = is_flag ? "" : v.text();
               if (is_flag ? v.flag() : (path == "true" || path == "True" || path == "latest"))
                 c.training.resume_from_checkpoint = "latest";
               else
                 c.training.resume_from_checkpoint = path == "false" || path == "False" ? "" : path;
             })
        .or_null(),
    honoured("env", map, "", "environment variables, set before anything else",
             [](RunConfig& c, const KeyValue& v) {
               c.training.env.clear();
               for (const auto& [name, value] : v.json().items()) {
                 if (name.empty() || name.find('=') != std::string::npos)
                   v.fail("\"{}\" is no name of an environment variable", name);
                 if (value.is_structured()) v.fail("{} must be a word or a number", name);
                 c.training.env.emplace_back(name, value.is_string()    ? value.get<std::string>()
                                                   : value.is_boolean() ? (value.get<bool>() ? "True" : "False")
                                                   : value.is_null()    ? "None"
                                                                        : value.dump());
               }
             })
        .or_null(),

    accepted("overwrite_output_dir", "finished files are replaced whole; checkpoints are kept"),
    accepted("run_name", kTracker),
    accepted("log_level", kOneLog),
    accepted("log_level_replica", kOneLog),
    accepted("log_on_each_node", kOneLog),
    accepted("include_num_input_tokens_seen", "the log has num_tokens and target_tokens at every step"),
    accepted("include_tokens_per_second", "the log has tokens_per_second at every step"),
    accepted("skip_memory_metrics", "the log has peak_device_bytes and peak_host_bytes at every step"),
    accepted("project", kTracker),
    accepted("trackio_space_id", kTracker),
    accepted("trackio_bucket_id", kTracker),
    accepted("trackio_static_space_id", kTracker),
    accepted("save_on_each_node", "checkpoints are written once, to output_dir"),
    accepted("enable_jit_checkpoint", "a signal always saves a checkpoint"),
    accepted("restore_callback_states_from_checkpoint", "there are no callbacks"),
    accepted("metric_for_best_model", "it only applies with load_best_model_at_end"),
    accepted("greater_is_better", "it only applies with load_best_model_at_end"),
    accepted("hub_token", kHub),
    accepted("hub_private_repo", kHub),
    accepted("hub_model_id", kHub),
    accepted("hub_strategy", kHub),
    accepted("hub_always_push", kHub),
    accepted("hub_revision", kHub),
    accepted("push_to_hub_model_id", kHub),
    accepted("push_to_hub_organization", kHub),
    accepted("push_to_hub_token", kHub),
    refused("push_to_hub", "false", "nothing is sent to the Hub; upload output_dir yourself"),
    refused("save_safetensors", "true", "weights are always safetensors"),
    refused("load_best_model_at_end", "false", "checkpoints aren't chosen by a metric"),
    refused("ignore_data_skip", "false", "a resumed run continues where it stopped"),
    refused("eval_delay", "0", "a delay before the first evaluation is not supported"),
};

}  // namespace

std::span<const KeyInfo> saving_key_rows() { return kRows; }

}  // namespace megatoken
