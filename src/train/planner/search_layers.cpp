// How many layers of a working set wait on the device, on the host, or are recomputed (search.h).
#include "train/planner/search.h"

#include <algorithm>
#include <utility>

namespace megatoken {
namespace {

constexpr double kNear = 0.999;  // of two times: no reason to prefer one
constexpr auto kDevice = static_cast<std::size_t>(Place::device);
constexpr auto kHost = static_cast<std::size_t>(Place::host);

int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }

}  // namespace

double PolicySearch::must_recompute(const ChoiceSize& waiting, const PlaceBytes& budget) const {
  const int64 all = waiting.bytes[kDevice] + waiting.bytes[kHost];
  const int64 room = shared_ ? budget[kHost] : budget[kDevice] + budget[kHost];
  return static_cast<double>(std::max<int64>(0, all - room));
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
  const RecomputeRates& rates = recompute_rates(base);
  const std::vector<int64> ways =
      rates.inputs < rates.outputs ? std::vector<int64>{2, 4, 1} : std::vector<int64>{1, 2, 4};
  const int64 slots = shared_ ? 0 : 1 + base.policy.prefetch;  // of fetched inputs, which a segment does without
  for (const int64 segment : ways) {                           // 1: attention alone is run again
    const int64 beside = (segment - 1 - slots) * counts_.input_bytes();
    if (!shared_ && waiting.bytes[kDevice] + std::max<int64>(0, beside) > budget[kDevice]) continue;
    if (auto found = recompute(base, inputs, outputs, segment, budget)) return found;
  }
  return std::nullopt;
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
