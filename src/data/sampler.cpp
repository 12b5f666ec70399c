#include "data/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "io/json.h"

namespace megatoken {
namespace {

// Streams of the generator: one for shuffle_dataset, the epochs' after it.
constexpr std::uint64_t kDatasetStream = 0x73687566'00000000u;

int64 divide_up(int64 a, int64 b) { return (a + b - 1) / b; }

// Fisher and Yates; draw i decides the place of element n-1-i.
void shuffle(std::vector<std::uint32_t>& items, std::uint64_t seed, std::uint64_t stream) {
  const Random random(seed, stream);
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(items.size() - i, i)]);
}

const char* name_of(RowOrder order) { return order == RowOrder::random ? "random" : "sequential"; }

}  // namespace

int64 StepRows::micro_steps() const { return divide_up(static_cast<int64>(rows.size()), batch * dp); }

std::span<const int64> StepRows::micro_batch(int64 micro_step, int64 dp_rank) const {
  check(micro_step >= 0 && dp_rank >= 0 && dp_rank < dp, "micro-step {} of rank {} of {}", micro_step, dp_rank, dp);
  const auto size = static_cast<int64>(rows.size());
  const int64 begin = std::min(size, (micro_step * dp + dp_rank) * batch);
  const int64 end = std::min(size, begin + batch);
  return std::span(rows).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options.rows > 0 && options.batch > 0 && options.accumulation > 0 && options.dp > 0,
        "sampler of {} rows, batch {} x {} x {}", options.rows, options.batch, options.accumulation, options.dp);
  check(options.rows <= std::numeric_limits<std::uint32_t>::max(), "{} rows are more than a sampler can order",
        options.rows);
  if (options.shuffle_dataset) {
    base_.resize(static_cast<std::size_t>(options.rows));
    std::iota(base_.begin(), base_.end(), 0u);
    shuffle(base_, options.seed, kDatasetStream);
  }
}

void Sampler::order_epoch() {
  if (ordered_epoch_ == epoch_) return;
  ordered_epoch_ = epoch_;
  order_ = base_;
  if (options_.order == RowOrder::sequential) return;
  order_.resize(static_cast<std::size_t>(options_.rows));
  if (base_.empty()) std::iota(order_.begin(), order_.end(), 0u);
  shuffle(order_, options_.seed, kDatasetStream + 1 + static_cast<std::uint64_t>(epoch_));
}

StepRows Sampler::next() {
  order_epoch();
  StepRows step{epoch_, {}, options_.batch, options_.dp};
  const int64 window = options_.batch * options_.accumulation * options_.dp;
  const int64 count = std::min(window, options_.rows - position_);
  step.rows.reserve(static_cast<std::size_t>(count));
  for (int64 i = position_; i < position_ + count; ++i)
    step.rows.push_back(order_.empty() ? i : static_cast<int64>(order_[static_cast<std::size_t>(i)]));
  position_ += count;
  if (position_ == options_.rows) {
    ++epoch_;
    position_ = 0;
  }
  return step;
}

int64 Sampler::steps_per_epoch() const {
  return divide_up(options_.rows, options_.batch * options_.accumulation * options_.dp);
}

int64 Sampler::total_steps(double epochs) const {
  return static_cast<int64>(std::ceil(epochs * static_cast<double>(steps_per_epoch())));
}

double Sampler::epoch() const {
  const int64 rows = options_.batch * options_.dp;
  return static_cast<double>(epoch_) +
         static_cast<double>(divide_up(position_, rows)) / static_cast<double>(divide_up(options_.rows, rows));
}

nlohmann::json Sampler::state() const {
  return {{"epoch", epoch_},
          {"position", position_},
          {"rows", options_.rows},
          {"order", name_of(options_.order)},
          {"shuffle_dataset", options_.shuffle_dataset},
          {"seed", options_.seed}};
}

void Sampler::restore(const nlohmann::json& state, const std::string& where) {
  using Type = nlohmann::json::value_t;
  const auto number = [&](const char* key) { return require(state, key, Type::number_unsigned, where).get<int64>(); };
  const auto differs = [&](std::string_view key, const auto& theirs, const auto& ours) {
    if (theirs != ours)
      throw ConfigError(
          "{}: the run to resume had {} {}, this one has {}; resume with the same data and settings, or "
          "start anew from the checkpoint's model",
          where, key, theirs, ours);
  };
  differs("rows in the dataset:", number("rows"), options_.rows);
  differs("data_seed (or seed)", require(state, "seed", Type::number_unsigned, where).get<std::uint64_t>(),
          options_.seed);
  differs("train_sampling_strategy", require(state, "order", Type::string, where).get<std::string>(),
          std::string(name_of(options_.order)));
  differs("shuffle_dataset", require(state, "shuffle_dataset", Type::boolean, where).get<bool>(),
          options_.shuffle_dataset);
  const int64 epoch = number("epoch"), position = number("position");
  if (epoch < 0 || position < 0 || position >= options_.rows)
    throw FileError("{}: sampler at epoch {}, row {} of {}", where, epoch, position, options_.rows);
  epoch_ = epoch;
  position_ = position;
}

}  // namespace megatoken
