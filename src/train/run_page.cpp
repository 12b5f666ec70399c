#include "train/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/byte_text.h"
#include "io/file.h"
#include "model/parameters.h"
#include "report/html_page.h"
#include "report/svg_chart.h"

namespace megatoken {
namespace {

using Json = nlohmann::json;
using Lines = std::vector<Json>;

// 1234567 as 1,234,567.
std::string grouped(int64 value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

Lines read_lines(const std::string& path) {
  Lines lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Json parsed = Json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("step") && parsed["step"].is_number()) lines.push_back(std::move(parsed));
  }
  return lines;
}

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : NAN;
}

Series series(const Lines& lines, const char* key, std::string name, bool dots = false) {
  Series made{std::move(name), {}, dots};
  for (const Json& line : lines)
    if (line.contains(key)) made.points.emplace_back(number(line, "step"), number(line, key));
  return made;
}

// The last line in which key has a value.
const Json* last_with(const Lines& lines, const char* key) {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (line->contains(key) && !(*line)[key].is_null()) return &*line;
  return nullptr;
}

// Of a fact: a number that an interrupted or foreign log lacks is a dash.
std::string text_of(const Json& line, const char* key, int digits) {
  const double value = number(line, key);
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}
std::string count_of(const Json& line, const char* key) {
  const double value = number(line, key);
  return std::isfinite(value) && std::abs(value) < 1e18 ? grouped(static_cast<int64>(value)) : "-";
}

Figure curve(const Lines& lines, const char* title, const char* key, bool from_zero = false, std::string note = "") {
  return {title, line_chart({title, "step", {series(lines, key, title)}, from_zero}), std::move(note)};
}

Figure loss_by_position(const Lines& lines) {
  const Json* line = last_with(lines, "eval_loss_by_position");
  if (line != nullptr && !(*line)["eval_loss_by_position"].is_array()) line = nullptr;
  std::vector<Bar> bars;
  if (line != nullptr)
    for (const Json& loss : (*line)["eval_loss_by_position"]) {
      const auto part = bars.size();
      bars.push_back({fmt::format("part {} of the sequence", part + 1), loss.is_number() ? loss.get<double>() : 0,
                      loss.is_number() ? fmt::format("{:.4f}", loss.get<double>()) : "no target"});
    }
  return {"Evaluation loss by position", bar_chart("evaluation loss by position", bars),
          line == nullptr ? "" : fmt::format("eight equal parts of each row, at step {}", number(*line, "step"))};
}

Figure memory(const PlannedRun& plan, const Lines& lines) {
  std::vector<Bar> bars;
  const auto add = [&](const char* name, double bytes) {
    if (bytes > 0) bars.push_back({name, bytes, size_text(static_cast<int64>(bytes))});
  };
  if (!plan.budget.shared) add("device: budget", static_cast<double>(plan.budget.device_bytes));
  add("device: plan", static_cast<double>(plan.device_bytes()));
  add("host: plan of a rank", static_cast<double>(plan.host_bytes()));
  if (const Json* line = last_with(lines, "peak_host_bytes"))
    add("host: measured peak of the process", number(*line, "peak_host_bytes"));
  return {"Memory", bar_chart("memory against the plan", bars),
          plan.budget.shared ? "on the CPU the device's memory is the host's" : ""};
}

Figure lengths(const PreparedDataset& data) {
  constexpr int64 kBins = 10;
  std::array<int64, kBins> counts{};
  const int64 width = std::max<int64>(1, (data.longest() + kBins - 1) / kBins);
  for (int64 row = 0; row < data.rows(); ++row)
    ++counts[static_cast<std::size_t>(std::min(kBins - 1, std::max<int64>(data.length(row) - 1, 0) / width))];
  std::vector<Bar> bars;
  for (int64 bin = 0; bin < kBins && bin * width < data.longest(); ++bin) {
    const int64 count = counts[static_cast<std::size_t>(bin)];
    bars.push_back(
        {fmt::format("{} to {} tokens", grouped(bin * width + 1), grouped(std::min((bin + 1) * width, data.longest()))),
         static_cast<double>(count), fmt::format("{} rows", grouped(count))});
  }
  return {"Length of the training rows", bar_chart("length of the training rows", bars), ""};
}

constexpr std::array<const char*, 7> kCategories = {
    "attention forward", "attention backward", "products", "memory-bound ops", "copies", "exchange", "waiting"};

std::size_t category_of(const TimelineEntry& entry) {
  if (entry.waiting) return 6;
  switch (entry.cost.kind) {
    case CostKind::attention_forward:
      return 0;
    case CostKind::attention_backward:
      return 1;
    case CostKind::gemm:
      return 2;
    case CostKind::memory:
      return 3;
    case CostKind::transfer:
      return 4;
    case CostKind::exchange:
      return 5;
  }
  return 3;
}

Figure timeline_figure(const Timeline& timeline, int64 step, double seconds) {
  std::vector<Lane> lanes;
  for (int s = 0; s < kNumStreams; ++s) lanes.push_back({std::string(name_of(static_cast<StreamId>(s))), {}});
  for (const TimelineEntry& entry : timeline.entries)
    lanes[static_cast<std::size_t>(entry.stream)].spans.push_back(
        {entry.begin_ns * 1e-9, entry.end_ns * 1e-9, category_of(entry)});
  return {fmt::format("Step {} by stream", step),
          lane_chart("timeline of a step by stream", lanes, {kCategories.begin(), kCategories.end()}, seconds, "s"),
          "of rank 0; profile_step: N writes any step's timeline for Perfetto", true};
}

Figure live_bytes_figure(const Timeline& timeline, int64 step) {
  std::array<std::map<double, int64>, kNumPlaces> changes;
  for (const TimelineBuffer& buffer : timeline.buffers) {
    auto& of_place = changes[static_cast<std::size_t>(buffer.place)];
    of_place[buffer.begin_ns * 1e-9] += buffer.bytes;
    of_place[buffer.end_ns * 1e-9] -= buffer.bytes;
  }
  LineChart chart{"live bytes of the step's buffers over time", "seconds", {}, true};
  for (int place = 0; place < kNumPlaces; ++place) {
    Series live{fmt::format("{}, GiB", name_of(static_cast<Place>(place))), {}, false};
    int64 bytes = 0;
    const auto point = [&](double at) { live.points.emplace_back(at, gib(bytes)); };
    for (const auto& [at, change] : changes[static_cast<std::size_t>(place)]) {
      point(at);  // level until here
      bytes += change;
      point(at);
    }
    if (!live.points.empty()) chart.series.push_back(std::move(live));
  }
  return {fmt::format("Buffers in step {}", step), line_chart(chart), "live bytes in the arenas, GiB"};
}

PageTable buffers_table(const PlannedRun& plan) {
  constexpr std::size_t kShown = 16;
  PageTable table{"Largest buffers of the plan", {"buffer", "place", "size"}, {}};
  for (std::size_t i = 0; i < std::min(kShown, plan.buffers.size()); ++i)
    table.rows.push_back(
        {plan.buffers[i].name, std::string(name_of(plan.buffers[i].place)), size_text(plan.buffers[i].bytes)});
  return table;
}

PageTable levers_table(const PlannedRun& plan) {
  PageTable table{"Levers of the plan", {"lever", "saves", "costs", "why"}, {}};
  for (const Lever& lever : plan.levers)
    table.rows.push_back(
        {lever.name, size_text(lever.saves_bytes), fmt::format("{:.3g} s a step", lever.costs_s), lever.reason});
  return table;
}

// 8 = dp_shard 2 x cp 4: sizes of 1 are left out.
std::string mesh_text(const Mesh& mesh) {
  std::string sizes;
  for (const auto& [name, size] :
       {std::pair("dp_replicate", mesh.dp_replicate), {"dp_shard", mesh.dp_shard}, {"cp", mesh.cp}})
    if (size > 1) sizes += fmt::format("{} {} {}", sizes.empty() ? " =" : " x", name, size);
  return std::to_string(mesh.size()) + sizes;
}

std::string configuration(const RunConfig& config) {
  std::string text;
  for (const auto& [key, value] : config.given) text += fmt::format("{}: {}\n", key, value);
  return text;
}

}  // namespace

RunPage::RunPage(const Job& job, int64 total_steps, std::string log_path)
    : job_(job),
      total_steps_(total_steps),
      log_path_(std::move(log_path)),
      path_(job.config.training.output_dir + "/report.html") {}

void RunPage::set_timeline(Timeline timeline, int64 step, double seconds) {
  profiled_ = Profiled{std::move(timeline), step, seconds};
}

void RunPage::write_when_due() {
  using namespace std::chrono_literals;
  if (!written_ || std::chrono::steady_clock::now() - *written_ >= 30s) write();
}

void RunPage::write() {
  const Lines lines = read_lines(log_path_);
  const ModelSpec& m = job_.model;
  const Mesh& mesh = job_.mesh;
  Page page;
  page.title = "Training of " + std::filesystem::path(job_.model_dir).filename().string();
  page.subtitle = fmt::format("{}, {} layers, {} query and {} key-value heads of {}; {} parameters, computed in {}; {}",
                              m.model_type, m.num_layers, m.num_heads, m.num_kv_heads, m.head_dim,
                              grouped(count_parameters(m)), name_of(job_.dtypes.compute), describe(m.rope));
  const Json* last = last_with(lines, "loss");
  const Json* evaluated = last_with(lines, "eval_loss");
  const auto fact = [&](const char* name, std::string value) { page.facts.emplace_back(name, std::move(value)); };
  fact("steps", fmt::format("{} of {}", last == nullptr ? 0 : static_cast<int64>(number(*last, "step")), total_steps_));
  if (last != nullptr) {
    fact("training loss", text_of(*last, "loss", 4));
    if (evaluated != nullptr) fact("evaluation loss", text_of(*evaluated, "eval_loss", 4));
    fact("tokens trained", count_of(*last, "num_tokens"));
    fact("tokens a second", count_of(*last, "tokens_per_second"));
    fact("seconds a step", text_of(*last, "step_time_s", 2));
    if (std::isfinite(number(*last, "mfu"))) fact("MFU", fmt::format("{:.1f} %", 100 * number(*last, "mfu")));
  }
  fact("longest row", fmt::format("{} tokens", grouped(job_.train_data->longest())));
  fact("ranks", mesh_text(mesh));

  LineChart loss{"loss", "step", {series(lines, "loss", "training")}, false};
  if (Series points = series(lines, "eval_loss", "evaluation", true); !points.points.empty())
    loss.series.push_back(std::move(points));
  page.figures.push_back({"Loss", line_chart(loss), ""});
  page.figures.push_back(curve(lines, "Learning rate", "learning_rate", true));
  page.figures.push_back(curve(lines, "Gradient norm", "grad_norm", true, "before clipping"));
  page.figures.push_back(curve(lines, "Tokens per second", "tokens_per_second", true));
  page.figures.push_back(curve(lines, "Token accuracy", "mean_token_accuracy"));
  page.figures.push_back(loss_by_position(lines));
  page.figures.push_back(memory(job_.plan, lines));
  page.figures.push_back(lengths(*job_.train_data));
  if (profiled_) {
    page.figures.push_back(live_bytes_figure(profiled_->timeline, profiled_->step));
    page.figures.push_back(timeline_figure(profiled_->timeline, profiled_->step, profiled_->seconds));
  }
  page.tables = {levers_table(job_.plan), buffers_table(job_.plan)};
  page.texts.emplace_back("Configuration as given", configuration(job_.config));
  write_file_atomic(path_, html_page(page));
  written_ = std::chrono::steady_clock::now();
}

}  // namespace megatoken
