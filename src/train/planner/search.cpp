#include "train/planner/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <thread>
#include <tuple>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr int64 kMiB = int64{1} << 20;
constexpr auto kDevice = static_cast<std::size_t>(Place::device);
constexpr auto kHost = static_cast<std::size_t>(Place::host);

constexpr double kNear = 0.999;       // of two times: no reason to prefer one
constexpr double kNoFaster = 0.9995;  // of the best time: what is bound by this is not worth counting

std::vector<Keep> expand(const LayerPin& pin, int64 layers, Keep automatic, const char* key) {
  if (pin.automatic()) return std::vector<Keep>(static_cast<std::size_t>(layers), automatic);
  std::vector<Keep> keep;
  for (const auto& run : pin.runs)
    keep.insert(keep.end(), static_cast<std::size_t>(run.layers < 0 ? layers : run.layers), run.keep);
  if (static_cast<int64>(keep.size()) != layers)
    throw ConfigError("{}: the runs name {} layers, the model has {}", key, keep.size(), layers);
  return keep;
}

// A GPU wants few, large tiles: each adds a pass over the weights' gradients, and small products leave it half empty.
constexpr int64 kCudaTokenTile = 32768;
constexpr int64 kCpuTokenTile = 1024;

// Rows of logits that take at most 256 MiB in float32 on the CPU. On a GPU 2048: each tile adds a pass over the head's
// gradient, and the layers' buffers need more than these logits anyway.
int64 default_loss_tile(int64 vocab, bool on_cuda) {
  if (on_cuda) return 2048;
  const int64 rows = 256 * kMiB / (4 * vocab);
  return std::clamp<int64>(rows / 64 * 64, 64, 4096);
}

std::string key_of(const Policy& p, const StatePlaces& places) {
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {}|", p.token_tile, p.loss_tile, p.head_groups, p.kv_block, p.prefetch,
                  p.exchange == KvExchange::ring, p.recompute_segment, static_cast<int>(p.segment_input),
                  static_cast<int>(places.gradients), static_cast<int>(places.weights));
  for (const auto* layers : {&p.layer_input, &p.attention_output})
    for (const Keep keep : *layers) key += static_cast<char>('0' + static_cast<int>(keep));
  return key;
}

// No smaller tiles (of tokens, of the loss, of keys) take less than what lives outside of them.
int64 live_bytes_without_tiles(const CountedStep& step) {
  return peak_live_bytes(step, Place::device, [](const SiteLifetimes& site) {
    return site.name.find("tile/") == std::string::npos && site.name.find("attention block/") == std::string::npos;
  });
}

}  // namespace

PolicySearch::PolicySearch(StepCounts& counts, const PlannerOptions& options, const ParallelOptions& parallel,
                           bool shared)
    : counts_(counts), options_(options), shared_(shared), layers_(counts.shape().model.num_layers) {
  const RunShape& shape = counts.shape();
  const ModelSpec& m = shape.model;
  Policy& p = initial_.policy;
  p.token_tile = options.token_tile.value_or(shape.on_cuda ? kCudaTokenTile : kCpuTokenTile);
  p.loss_tile = options.loss_tile.value_or(default_loss_tile(m.vocab_size, shape.on_cuda));
  p.kv_block = options.kv_block.value_or(shape.on_cuda ? 65536 : 0);  // docs/cudnn.md, rule 6
  p.layer_input = expand(options.layer_input, layers_, Keep::device, "layer_input");
  p.attention_output = expand(options.attention_output, layers_, Keep::device, "attention_output");
  p.exchange = parallel.exchange.value_or(KvExchange::allgather);
  if (options.head_group) {
    if (*options.head_group != 0 && m.num_kv_heads % *options.head_group != 0)
      throw ConfigError("head_group: {} does not divide the model's {} KV heads", *options.head_group, m.num_kv_heads);
    p.head_groups = *options.head_group == 0 ? 1 : m.num_kv_heads / *options.head_group;
    groups_ = {p.head_groups};
  } else {
    for (int64 groups = 1; groups <= m.num_kv_heads; ++groups)
      if (m.num_kv_heads % groups == 0) groups_.push_back(groups);
  }
  // Smaller tiles cost launches and smaller products; smaller key blocks slower kernels.
  for (const auto& [part, loss_part, key_part] : {std::tuple(1, 1, 1), {4, 2, 1}, {16, 4, 1}, {64, 16, 4}})
    tiles_.push_back({options.token_tile ? p.token_tile : p.token_tile / part,
                      options.loss_tile ? p.loss_tile : std::max<int64>(p.loss_tile / loss_part, 16),
                      options.kv_block ? p.kv_block : p.kv_block / key_part});
  exchanges_ = {p.exchange};
  if (shape.mesh.cp > 1 && !parallel.exchange) exchanges_.push_back(KvExchange::ring);
  p.prefetch = options.prefetch.value_or(1);
  prefetches_ = {p.prefetch};
  if (!options.prefetch) prefetches_.push_back(0);
  const std::pair<PlaceChoice, Place StatePlaces::*> arrays[] = {{options.optimizer_state, &StatePlaces::optimizer},
                                                                 {options.gradients, &StatePlaces::gradients},
                                                                 {options.parameters, &StatePlaces::weights}};
  for (const auto& [pin, array] : arrays)
    if (pin == PlaceChoice::host) initial_.places.*array = Place::host;
  places_ = {initial_.places};
  for (const auto& [pin, array] : arrays) {
    if (shared || pin != PlaceChoice::automatic) continue;
    places_.push_back(places_.back());
    places_.back().*array = Place::host;
  }
  // The fastest working set is the first choice; of near-equals, the plainest. Exchange hides behind more head groups.
  if (exchanges_.size() > 1) {
    std::vector<Choice> bases;
    for (const int64 groups : groups_)
      for (const KvExchange exchange : exchanges_)
        bases.push_back(with(Working{groups, 0, exchange, 1}, initial_.places));
    count_ahead(bases);
    std::vector<double> seconds;
    double fastest = std::numeric_limits<double>::infinity();
    for (const int64 groups : groups_) {
      double& least = seconds.emplace_back(std::numeric_limits<double>::infinity());
      for (const KvExchange exchange : exchanges_) {
        const Program& waiting = program(with(Working{groups, 0, exchange, 1}, initial_.places));
        const double time = waiting.train_s - waiting.transfers_s;  // with everything on the device
        least = std::min(least, time);
        if (time >= kNear * fastest) continue;
        fastest = time;
        p.exchange = exchange;
        p.head_groups = groups;
      }
    }
    std::vector<std::size_t> order(groups_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return seconds[a] < kNear * seconds[b]; });
    std::vector<int64> sorted;
    for (const std::size_t i : order) sorted.push_back(groups_[i]);
    groups_ = sorted;
  }
}

Choice PolicySearch::with(const Working& working, const StatePlaces& places) const {
  Choice choice = initial_;
  Policy& p = choice.policy;
  p.head_groups = working.groups;
  p.token_tile = tiles_[working.tiles].token;
  p.loss_tile = tiles_[working.tiles].loss;
  p.kv_block = tiles_[working.tiles].kv_block;
  p.exchange = working.exchange;
  p.prefetch = working.prefetch;
  choice.places = places;
  return with(std::move(choice), all_waiting(), all_waiting());
}

Choice PolicySearch::with(Choice choice, const Layers& inputs, const Layers& outputs) const {
  const auto assign = [&](std::vector<Keep>& keep, const Layers& layers) {
    const auto device = keep.begin() + layers.device, host = device + layers.host;
    std::fill(keep.begin(), device, Keep::device);
    std::fill(device, host, Keep::host);
    std::fill(host, keep.end(), Keep::recompute);
  };
  if (options_.layer_input.automatic()) assign(choice.policy.layer_input, inputs);
  if (options_.attention_output.automatic()) assign(choice.policy.attention_output, outputs);
  return choice;
}

Choice PolicySearch::least() const {
  const int64 most_groups = *std::max_element(groups_.begin(), groups_.end());
  const Choice base =
      with(Working{most_groups, tiles_.size() - 1, exchanges_.back(), prefetches_.back()}, places_.back());
  return shared_ ? with(base, {0, 0, layers_}, {0, 0, layers_}) : base;
}

void PolicySearch::count_ahead(const std::vector<Choice>& choices) {
  std::vector<std::pair<const Choice*, Program*>> unknown;
  for (const Choice& choice : choices) {
    const auto [at, added] = known_.try_emplace(key_of(choice.policy, choice.places));
    if (!added) continue;
    counts_.prepare(choice);
    unknown.emplace_back(&choice, &at->second);
  }
  constexpr std::size_t kMostThreads = 4;
  const std::size_t threads =
      std::min({std::size_t{std::max(1u, std::thread::hardware_concurrency())}, kMostThreads, unknown.size()});
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < unknown.size(); i = next++) *unknown[i].second = measure(*unknown[i].first);
  };
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (auto& other : others) other.get();
}

const PolicySearch::Program& PolicySearch::program(const Choice& choice) {
  const auto [at, added] = known_.try_emplace(key_of(choice.policy, choice.places));
  if (added) at->second = measure(choice);
  return at->second;
}

PolicySearch::Program PolicySearch::measure(const Choice& choice) {
  Program program;
  const CountedChoice counted = counts_.count(choice);
  for (std::size_t p = 0; p < program.live.size(); ++p)
    program.live[p] = std::max(counted.train.peak_live_bytes[p], counted.evaluation.peak_live_bytes[p]);
  const StepPrice& price = counted.train_price;
  program.without_tiles = live_bytes_without_tiles(counted.train);
  program.train_s = price.total_s;
  program.exposed_s = price.exposed_total_s();
  program.transfers_s = program.exposed_s - price.exposed_s[static_cast<std::size_t>(StreamId::exchange)];
  return program;
}

ChoiceSize PolicySearch::size(const Choice& choice) {
  const Program& program = this->program(choice);
  ChoiceSize size{choice, {}, steps() * program.train_s + counts_.update_s(choice.places), steps() * program.exposed_s};
  const CountedStep& update = counts_.update(choice.places);
  for (std::size_t p = 0; p < size.bytes.size(); ++p)
    size.bytes[p] = counts_.fixed_bytes(choice.places)[p] + std::max(program.live[p], update.peak_live_bytes[p]);
  return size;
}

double PolicySearch::least_s(const Working& working) {
  const Program& waiting = program(with(working, places_.front()));
  return steps() * (waiting.train_s - waiting.transfers_s);
}

const PolicySearch::RecomputeRates& PolicySearch::recompute_rates(const Choice& base) {
  if (recompute_rates_) return *recompute_rates_;
  constexpr int64 kSegment = 2;
  Choice segments = with(base, {0, 0, layers_}, all_waiting());
  segments.policy.recompute_segment = kSegment;
  segments.policy.segment_input = shared_ ? Keep::device : Keep::host;
  const Choice attention = with(base, all_waiting(), {0, 0, layers_});
  const bool inputs = options_.layer_input.automatic() && layers_ >= kSegment;
  const bool outputs = options_.attention_output.automatic();
  std::vector<Choice> choices{base};
  if (inputs) choices.push_back(segments);
  if (outputs) choices.push_back(attention);
  count_ahead(choices);
  const Program& without = program(base);
  const auto rate = [&](double with_it_s, double without_s, int64 saved) {
    return steps() * std::max(0.0, with_it_s - without_s) / static_cast<double>(saved);
  };
  const auto compute_s = [](const Program& of) { return of.train_s - of.transfers_s; };
  recompute_rates_.emplace();
  if (inputs) {
    const int64 saved = layers_ / kSegment * counts_.input_bytes();
    recompute_rates_->inputs = rate(compute_s(program(segments)), compute_s(without), saved);
    recompute_rates_->inputs_fetching = rate(program(segments).transfers_s, without.transfers_s, saved);
  }
  if (outputs)
    recompute_rates_->outputs =
        rate(compute_s(program(attention)), compute_s(without), layers_ * counts_.output_bytes());
  return *recompute_rates_;
}

double PolicySearch::bound_s(const Working& working, const StatePlaces& places, const ChoiceSize& whole,
                             const PlaceBytes& budget, int64 spared) {
  constexpr double kSure = 0.9;
  const double again = std::max(0.0, must_recompute(whole, budget) - static_cast<double>(spared));
  const auto all_inputs = static_cast<double>(layers_ * counts_.input_bytes());
  const auto all_outputs = static_cast<double>(layers_ * counts_.output_bytes());
  const auto room = static_cast<double>(std::max<int64>(0, budget[kDevice] - whole.bytes[kDevice] + spared));
  // The share of attention outputs that are fetched, and of layers that are fetched and not recomputed.
  const double fetched = shared_ ? 0 : std::max(0.0, 1 - room / all_outputs);
  const double plain = std::max(0.0, fetched - again / (all_inputs / 2));
  Working ahead = working;
  ahead.prefetch = prefetches_.front();
  const double late_s =
      program(with(working, places_.front())).transfers_s - program(with(ahead, places_.front())).transfers_s;
  double more = std::max(0.0, late_s) * steps() * plain;
  if (again > 0) {
    ahead.tiles = 0;
    const RecomputeRates& rates = recompute_rates(with(ahead, places_.front()));
    const double rate = std::min(rates.inputs + rates.inputs_fetching * fetched, rates.outputs);
    if (std::isfinite(rate)) more += rate * again;
  }
  return least_s(working) + counts_.update_s(places) + kSure * more;
}

bool PolicySearch::may_fit(const Working& working, const StatePlaces& places, const PlaceBytes& budget) {
  if (shared_) return inside(size(with(with(working, places), {0, 0, layers_}, {0, 0, layers_})).bytes, budget);
  // State on the host takes rings on the device: no program of it is smaller than the one without.
  const int64 fixed = counts_.fixed_bytes(places)[kDevice];
  return fixed <= budget[kDevice] && fixed + program(with(working, places_.front())).live[kDevice] <= budget[kDevice];
}

std::optional<ChoiceSize> PolicySearch::best(const PlaceBytes& budget) {
  const ChoiceSize initial = size(initial_);
  if (inside(initial.bytes, budget)) return initial;
  std::vector<Choice> bases;
  for (const int64 groups : groups_)
    for (const KvExchange exchange : exchanges_)
      for (const int64 prefetch : prefetches_)
        bases.push_back(with(Working{groups, 0, exchange, prefetch}, places_.front()));
  count_ahead(bases);

  std::vector<Candidate> queue;
  std::size_t turns = 0;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return std::tie(a.bound_s, a.turn) > std::tie(b.bound_s, b.turn);
  };
  const auto push = [&](const Candidate& candidate) {
    queue.push_back(candidate);
    std::push_heap(queue.begin(), queue.end(), later);
  };
  for (const int64 groups : groups_)
    for (const KvExchange exchange : exchanges_) {
      const double least = least_s({groups, 0, exchange, prefetches_.front()});
      for (const int64 prefetch : prefetches_)
        for (const StatePlaces& places : places_)
          push({least + counts_.update_s(places), turns++, {groups, 0, exchange, prefetch}, &places});
    }
  const auto live = [&](const Working& working) {
    const PlaceBytes& bytes = program(with(working, places_.front())).live;
    return bytes[kDevice] + bytes[kHost];
  };
  // The same with tiles a size smaller, where some smaller ones would need less.
  const auto push_smaller = [&](const Candidate& candidate, const ChoiceSize& whole) {
    const Working& working = candidate.working;
    Working smallest = working;
    smallest.tiles = tiles_.size() - 1;
    if (working.tiles == smallest.tiles) return;
    const int64 least =
        counts_.fixed_bytes(*candidate.places)[kDevice] + program(with(working, places_.front())).without_tiles;
    if (!shared_ && least > budget[kDevice]) return;
    if (!may_fit(smallest, *candidate.places, budget)) return;
    const int64 saved = live(working) - live(smallest);
    if (saved <= 0) return;
    Candidate next = candidate;
    next.turn = turns++;
    next.known = Candidate::Known::nothing;
    next.bound_s = bound_s(working, *next.places, whole, budget, saved);
    ++next.working.tiles;
    push(next);
  };

  std::optional<ChoiceSize> best;
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    Candidate candidate = queue.back();
    queue.pop_back();
    if (best && candidate.bound_s >= kNoFaster * best->step_time_s) break;
    const Working& working = candidate.working;
    const StatePlaces& places = *candidate.places;
    // Where state lies changes little: the first places' program tells how much is to be recomputed.
    const bool unknown = candidate.known == Candidate::Known::nothing;
    const ChoiceSize whole = size(with(working, unknown ? places_.front() : places));
    const bool fits = unknown ? may_fit(working, places, budget) : shared_ || whole.bytes[kDevice] <= budget[kDevice];
    if (!fits) {
      push_smaller(candidate, whole);
      continue;
    }
    if (unknown && candidate.larger.placed_s > 0) {
      // Bytes are worth at most about what they were where the tiles are larger.
      const auto& larger = candidate.larger;
      constexpr double kGenerous = 2;
      const auto saved = static_cast<double>(std::max<int64>(0, larger.live - live(working)));
      candidate.bound_s = std::max(
          candidate.bound_s, larger.placed_s + least_s(working) - larger.least_s - kGenerous * larger.byte_s * saved);
      push_smaller(candidate, whole);
    }
    if (candidate.known != Candidate::Known::all) {
      candidate.bound_s = std::max(candidate.bound_s, bound_s(working, places, whole, budget, 0));
      candidate.known = unknown ? Candidate::Known::working_set : Candidate::Known::all;
      push(candidate);
      continue;
    }
    const auto placed = place(whole.choice, budget);
    if (placed && (!best || placed->step_time_s < best->step_time_s)) best = placed;
    if (!placed) {
      if (candidate.larger.placed_s == 0) push_smaller(candidate, whole);
      continue;
    }
    // Smaller tiles make room for layers that are recomputed, or whose transfers show.
    const double over_s = placed->step_time_s - least_s(working) - counts_.update_s(places);
    if (candidate.larger.placed_s > 0 || over_s < (1 - kNoFaster) * placed->step_time_s) continue;
    const double again = must_recompute(whole, budget);
    const auto elsewhere = static_cast<double>(whole.bytes[kDevice] + whole.bytes[kHost] - budget[kDevice]);
    candidate.larger = {placed->step_time_s, least_s(working), over_s / std::max(1.0, again > 0 ? again : elsewhere),
                        live(working)};
    push_smaller(candidate, whole);
  }
  if (!best) return std::nullopt;
  return settle(relax(*best, budget), budget);
}

std::optional<ChoiceSize> PolicySearch::again(const Choice& last, const PlaceBytes& budget) {
  Choice base = last;
  base.policy.recompute_segment = initial_.policy.recompute_segment;
  base.policy.segment_input = initial_.policy.segment_input;
  const auto found = place(with(base, all_waiting(), all_waiting()), budget);
  return found ? settle(*found, budget) : best(budget);
}

}  // namespace megatoken
