#include "train/planner/search.h"

#include <algorithm>
#include <atomic>
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

constexpr double kNear = 0.999;  // of two times: no reason to prefer one

int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }

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
  program.train_s = price.total_s;
  program.exposed_s = price.exposed_total_s();
  program.transfers_s = program.exposed_s - price.exposed_s[static_cast<std::size_t>(StreamId::exchange)];
  program.attention_s = price.compute_s[static_cast<std::size_t>(WorkKind::attention_forward)];
  program.gemm_s = price.compute_s[static_cast<std::size_t>(WorkKind::gemm)];
  return program;
}

ChoiceSize PolicySearch::size(const Choice& choice) {
  const Program& program = this->program(choice);
  const auto steps = static_cast<double>(counts_.shape().micro_batches);
  ChoiceSize size{choice, {}, steps * program.train_s + counts_.update_s(choice.places), steps * program.exposed_s};
  const CountedStep& update = counts_.update(choice.places);
  for (std::size_t p = 0; p < size.bytes.size(); ++p)
    size.bytes[p] = counts_.fixed_bytes(choice.places)[p] + std::max(program.live[p], update.peak_live_bytes[p]);
  return size;
}

double PolicySearch::must_recompute(const ChoiceSize& waiting, const PlaceBytes& budget) const {
  const int64 all = waiting.bytes[kDevice] + waiting.bytes[kHost];
  const int64 room = shared_ ? budget[kHost] : budget[kDevice] + budget[kHost];
  return static_cast<double>(std::max<int64>(0, all - room));
}

bool PolicySearch::recomputes(const Choice& choice) const {
  const auto has = [](const std::vector<Keep>& layers) {
    return std::find(layers.begin(), layers.end(), Keep::recompute) != layers.end();
  };
  return (options_.layer_input.automatic() && has(choice.policy.layer_input)) ||
         (options_.attention_output.automatic() && has(choice.policy.attention_output));
}

bool PolicySearch::hidden(const ChoiceSize& size) const {
  constexpr double kHidden = 0.002;  // of the step
  return size.exposed_s <= kHidden * size.step_time_s;
}

bool PolicySearch::inside(const PlaceBytes& bytes, const PlaceBytes& budget) const {
  if (shared_) return bytes[kDevice] + bytes[kHost] <= budget[kHost];
  return bytes[kDevice] <= budget[kDevice] && bytes[kHost] <= budget[kHost];
}

std::optional<ChoiceSize> PolicySearch::fill_device(const Choice& base, Layers& inputs, Layers& outputs,
                                                    const PlaceBytes& budget) {
  std::optional<ChoiceSize> found;
  const int64 x = counts_.input_bytes(), o = counts_.output_bytes();
  const auto attempt = [&](int64 more_inputs, int64 more_outputs) {
    Layers in = inputs, out = outputs;
    in.device = std::clamp<int64>(in.device + more_inputs, 0, layers_);
    out.device = std::clamp<int64>(out.device + more_outputs, 0, layers_);
    in.host = layers_ - in.device;
    out.host = layers_ - out.device;
    const ChoiceSize size = this->size(with(base, in, out));
    if (size.bytes[kDevice] > budget[kDevice]) return false;
    inputs = in;
    outputs = out;
    found = size;
    return true;
  };
  if (!attempt(0, 0)) return std::nullopt;
  constexpr int64 kRing = 3;  // what is fetched ahead has no place any more when the last layer stays on the device
  for (int round = 0; round < 3; ++round) {
    const int64 room = budget[kDevice] - found->bytes[kDevice];
    int64 more_outputs = options_.attention_output.automatic() ? std::min(layers_ - outputs.device, room / o) : 0;
    if (more_outputs > 0 && outputs.device + more_outputs >= layers_ - kRing && attempt(0, layers_)) continue;
    if (more_outputs > 0 && !attempt(0, more_outputs)) break;
    if (more_outputs > 0) continue;
    if (options_.attention_output.automatic() && outputs.device < layers_) {
      if (outputs.device < layers_ - kRing || !attempt(0, layers_)) break;
      continue;
    }
    if (!options_.layer_input.automatic() || inputs.device == layers_) break;
    const int64 more_inputs = std::min(layers_ - inputs.device, room / x);
    if (inputs.device + more_inputs >= layers_ - kRing && attempt(layers_, 0)) break;
    if (more_inputs == 0 || !attempt(more_inputs, 0)) break;
  }
  return found;
}

std::optional<ChoiceSize> PolicySearch::recompute(const Choice& base, Layers inputs, Layers outputs, int64 segment,
                                                  const PlaceBytes& budget) {
  Choice choice = base;
  choice.policy.recompute_segment = std::max<int64>(segment, 2);
  choice.policy.segment_input = shared_ ? Keep::device : Keep::host;
  const int64 x = counts_.input_bytes(), o = counts_.output_bytes();
  const bool inputs_again = segment > 1 && options_.layer_input.automatic();
  const auto take = [&](int64& from, int64& to, int64 wanted) {
    const int64 taken = std::min(from, std::max<int64>(wanted, 0));
    from -= taken;
    to += taken;
    return taken > 0;
  };
  for (int round = 0; round < 8; ++round) {
    // Before anything is recomputed the layers' bytes are known without counting.
    const bool plain = inputs.again == 0 && outputs.again == 0;
    ChoiceSize size = this->size(plain ? base : with(choice, inputs, outputs));
    if (plain && !shared_)
      for (const auto& [layers, bytes] : {std::pair(inputs, x), std::pair(outputs, o)}) {
        size.bytes[kDevice] += layers.device * bytes;
        size.bytes[kHost] -= layers.device * bytes;
      }
    if (!plain && inside(size.bytes, budget)) return size;
    int64 device_excess = size.bytes[kDevice] - budget[kDevice];
    int64 waiting_excess = size.bytes[kHost] - budget[kHost];
    if (shared_) {
      waiting_excess += size.bytes[kDevice];
      device_excess = 0;
    }
    bool moved = false;
    if (device_excess > 0) {
      moved = take(outputs.device, outputs.host, ceil_div(device_excess, o));
      if (!moved) moved = take(inputs.device, inputs.host, ceil_div(device_excess, x));
      if (!moved) return std::nullopt;
      continue;
    }
    int64& waiting_inputs = shared_ ? inputs.device : inputs.host;
    int64& waiting_outputs = shared_ ? outputs.device : outputs.host;
    if (inputs_again) {
      // A segment's inputs are recomputed side by side on the device.
      int64 excess = waiting_excess;
      if (shared_ && inputs.again == 0) excess += (segment - 1) * x;
      const int64 layers = ceil_div(ceil_div(excess * segment, x * (segment - 1)), segment) * segment;
      moved = take(waiting_inputs, inputs.again, layers);
    }
    // Longer segments recompute as much for each byte that they save, and can save more; then attention.
    if (!moved && segment != 2 && options_.attention_output.automatic())
      moved = take(waiting_outputs, outputs.again, ceil_div(waiting_excess, o));
    if (!moved) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<ChoiceSize> PolicySearch::place(const Choice& base, const PlaceBytes& budget) {
  const ChoiceSize waiting = size(base);
  if (inside(waiting.bytes, budget) && (shared_ || hidden(waiting))) return waiting;
  Layers inputs = all_waiting(), outputs = all_waiting();
  if (!shared_) {
    if (waiting.bytes[kDevice] > budget[kDevice]) return std::nullopt;
    if (inside(waiting.bytes, budget)) return fill_device(base, inputs, outputs, budget);
    // The host is short: what the device has room for, then recomputing.
    const int64 room = budget[kDevice] - waiting.bytes[kDevice];
    if (options_.attention_output.automatic()) outputs.device = std::min(layers_, room / counts_.output_bytes());
    outputs.host = layers_ - outputs.device;
    if (const auto filled = fill_device(base, inputs, outputs, budget); filled && inside(filled->bytes, budget))
      return filled;
  }
  // What costs less a byte first: the token-wise work of a layer, or its attention.
  const Program& program = this->program(base);
  const double again_inputs = program.gemm_s / 4 / static_cast<double>(counts_.input_bytes());
  const double again_outputs = program.attention_s / static_cast<double>(counts_.output_bytes());
  const std::vector<int64> ways =
      again_inputs < again_outputs ? std::vector<int64>{2, 4, 1} : std::vector<int64>{1, 2, 4};
  const int64 slots = shared_ ? 0 : 1 + base.policy.prefetch;  // of fetched inputs, which a segment does without
  for (const int64 segment : ways) {                           // 1: attention alone is run again
    const int64 beside = (segment - 1 - slots) * counts_.input_bytes();
    if (!shared_ && waiting.bytes[kDevice] + std::max<int64>(0, beside) > budget[kDevice]) continue;
    if (auto found = recompute(base, inputs, outputs, segment, budget)) return found;
  }
  return std::nullopt;
}

// The largest tiles with which a working set's device bytes stay inside, if any.
std::optional<std::size_t> PolicySearch::largest_tiles(Working working, const StatePlaces& places,
                                                       const PlaceBytes& budget) {
  const auto fits = [&](std::size_t tiles) {
    working.tiles = tiles;
    Choice base = with(working, places);
    if (shared_) {
      base = with(base, {0, 0, layers_}, {0, 0, layers_});
      return inside(size(base).bytes, budget);
    }
    // State on the host takes rings on the device: no program of it is smaller than the one without.
    const Program& least = program(with(working, places_.front()));
    if (counts_.fixed_bytes(places)[kDevice] + least.live[kDevice] > budget[kDevice]) return false;
    return size(base).bytes[kDevice] <= budget[kDevice];
  };
  if (!fits(tiles_.size() - 1)) return std::nullopt;
  std::size_t tiles = 0;
  while (tiles + 1 < tiles_.size() && !fits(tiles)) ++tiles;
  return tiles;
}

std::optional<ChoiceSize> PolicySearch::consider(const Choice& base, const PlaceBytes& budget,
                                                 std::optional<ChoiceSize>& best) {
  const ChoiceSize whole = size(base);
  const double again = must_recompute(whole, budget);
  if (best && whole.step_time_s - whole.exposed_s + recompute_s_per_byte_ * again >= best->step_time_s)
    return std::nullopt;
  const auto placed = place(base, budget);
  if (!placed) return std::nullopt;
  if (again > 0) {
    constexpr double kSure = 0.9;  // recomputing elsewhere is not cheaper than that
    const double rate = kSure * (placed->step_time_s - whole.step_time_s) / again;
    if (rate > 0 && (recompute_s_per_byte_ == 0 || rate < recompute_s_per_byte_)) recompute_s_per_byte_ = rate;
  }
  if (!best || placed->step_time_s < best->step_time_s) best = placed;
  return placed;
}

std::optional<ChoiceSize> PolicySearch::best(const PlaceBytes& budget) {
  const ChoiceSize initial = size(initial_);
  if (inside(initial.bytes, budget)) return initial;
  std::optional<ChoiceSize> best;
  for (const int64 groups : groups_) {
    if (!largest_tiles({groups, 0, exchanges_.back(), prefetches_.back()}, places_.back(), budget)) continue;
    std::vector<Choice> bases;
    for (const KvExchange exchange : exchanges_)
      for (const int64 prefetch : prefetches_)
        for (const std::size_t tiles : {std::size_t{0}, tiles_.size() - 1})
          bases.push_back(with(Working{groups, tiles, exchange, prefetch}, places_.front()));
    if (!best) count_ahead(bases);
    bool plain = false;  // fitted with nothing more engaged: what engages more is not needed
    for (const KvExchange exchange : exchanges_)
      for (const int64 prefetch : prefetches_) {
        Working working{groups, 0, exchange, prefetch};
        // Smaller tiles and state on the host only add to this.
        const ChoiceSize fastest = size(with(working, places_.front()));
        const double compute_s = fastest.step_time_s - fastest.exposed_s - counts_.update_s(places_.front());
        bool settled = false;
        for (const StatePlaces& places : places_) {
          if (best && compute_s + counts_.update_s(places) >= best->step_time_s) break;
          working.tiles = 0;
          const auto tiles = largest_tiles(working, places, budget);
          if (!tiles) continue;
          // Where transfers show, smaller tiles or more state on the host may make room for layers on the device.
          for (working.tiles = *tiles; working.tiles < tiles_.size(); ++working.tiles) {
            const Choice base = with(working, places);
            const ChoiceSize whole = size(base);
            constexpr double kLittle = 0.01;  // of the step, waiting for transfers
            const bool all_hidden = whole.exposed_s <= kLittle * whole.step_time_s;
            const auto placed = consider(base, budget, best);
            settled = placed && all_hidden && working.tiles == 0 && !recomputes(placed->choice);
            // Smaller tiles may also spare recomputing.
            if (must_recompute(whole, budget) == 0 && (!placed || all_hidden)) break;
          }
          if (settled) break;
        }
        plain |= best && best->choice.policy.head_groups == groups && best->choice.places == places_.front() &&
                 best->choice.policy.token_tile == tiles_.front().token &&
                 best->choice.policy.prefetch == prefetches_.front() && hidden(*best) && !recomputes(best->choice);
        if (plain) break;
      }
    if (plain) break;
  }
  if (!best) return std::nullopt;
  return settle(relax(*best, budget), budget);
}

std::optional<ChoiceSize> PolicySearch::again(const Choice& last, const PlaceBytes& budget) {
  Choice base = last;
  base.policy.recompute_segment = initial_.policy.recompute_segment;
  base.policy.segment_input = initial_.policy.segment_input;
  std::optional<ChoiceSize> found;
  consider(with(base, all_waiting(), all_waiting()), budget, found);
  return found ? settle(*found, budget) : best(budget);
}

// What the device has room for stays there.
ChoiceSize PolicySearch::settle(const ChoiceSize& found, const PlaceBytes& budget) {
  const Choice waiting = with(found.choice, all_waiting(), all_waiting());
  if (shared_ || !(waiting == found.choice)) return found;
  Layers inputs = all_waiting(), outputs = all_waiting();
  const auto filled = fill_device(waiting, inputs, outputs, budget);
  return filled && kNear * filled->step_time_s <= found.step_time_s ? *filled : found;
}

ChoiceSize PolicySearch::relax(ChoiceSize best, const PlaceBytes& budget) {
  const auto attempt = [&](auto change) {
    Choice choice = best.choice;
    change(choice.policy);
    if (choice == best.choice) return false;
    const ChoiceSize size = this->size(choice);
    if (!inside(size.bytes, budget) || size.step_time_s > best.step_time_s) return false;
    best = size;
    return true;
  };
  const Policy& wanted = initial_.policy;
  attempt([&](Policy& p) { p.kv_block = wanted.kv_block; });
  attempt([&](Policy& p) { p.loss_tile = wanted.loss_tile; });
  attempt([&](Policy& p) { p.exchange = wanted.exchange; });
  attempt([&](Policy& p) { p.prefetch = wanted.prefetch; });
  while (attempt([&](Policy& p) { p.token_tile = std::min(wanted.token_tile, 2 * p.token_tile); })) {
  }
  return best;
}

}  // namespace megatoken
