// Keys of the planner: what it may use, and pins for what it would choose.
#include <charconv>

#include "spec/run_config.h"
#include "spec/run_config_keys.h"

namespace megatoken {
namespace {

using enum ValueType;

constexpr int64 kMostLayers = 1 << 14;

Keep keep_of(std::string_view word, const KeyValue& value) {
  if (word == "device") return Keep::device;
  if (word == "host") return Keep::host;
  if (word == "recompute") return Keep::recompute;
  value.expected("auto, device, host, recompute, or a mix of layers such as host:14,device:7,recompute:7");
}

LayerPin layer_pin(const KeyValue& value) {
  const std::string all = value.text();
  LayerPin pin;
  if (all == "auto") return pin;
  if (all.find(':') == std::string::npos) {
    pin.runs.push_back({keep_of(all, value), -1});
    return pin;
  }
  std::string_view rest = all;
  while (true) {
    const auto comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const auto colon = part.find(':');
    const Keep keep = keep_of(part.substr(0, colon), value);
    int64 layers = 0;
    const std::string_view count = colon == std::string_view::npos ? "" : part.substr(colon + 1);
    const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), layers);
    if (error != std::errc() || end != count.data() + count.size() || layers < 1 || layers > kMostLayers)
      value.fail("\"{}\" needs a number of layers, as in host:14", part);
    if (!pin.runs.empty() && pin.runs.back().keep == keep)
      pin.runs.back().layers += layers;
    else
      pin.runs.push_back({keep, layers});
    if (comma == std::string_view::npos) return pin;
    rest.remove_prefix(comma + 1);
  }
}

PlaceChoice place(const KeyValue& value) {
  return value.choice<PlaceChoice>(
      {{"auto", PlaceChoice::automatic}, {"device", PlaceChoice::device}, {"host", PlaceChoice::host}});
}

const KeyInfo kRows[] = {
    honoured("device_memory", size, "",
             "bytes of each device to stay inside, everything counted; not set: the device's",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.planner.device_memory = v.bytes();
             })
        .or_null(),
    honoured("host_memory", size, "", "bytes of each host to stay inside; not set: what the host and its cgroup allow",
             [](RunConfig& c, const KeyValue& v) {
               if (!v.is_null()) c.planner.host_memory = v.bytes();
             })
        .or_null(),
    honoured(
        "layer_input", text, "auto",
        "where a layer's input waits for backward: auto, device, host, recompute, or a mix of layers from the first "
        "on such as host:14,device:7,recompute:7",
        [](RunConfig& c, const KeyValue& v) { c.planner.layer_input = layer_pin(v); }),
    honoured("attention_output", text, "auto", "where a layer's attention output waits for backward; as layer_input",
             [](RunConfig& c, const KeyValue& v) { c.planner.attention_output = layer_pin(v); }),
    honoured("optimizer_state", choice, "auto",
             "where moments and what masters have beyond the weights live: auto, device or host",
             [](RunConfig& c, const KeyValue& v) { c.planner.optimizer_state = place(v); }),
    honoured("gradients", choice, "auto", "where accumulated gradients live: auto, device or host",
             [](RunConfig& c, const KeyValue& v) { c.planner.gradients = place(v); }),
    honoured("parameters", choice, "auto", "where sharded weights live: auto, device or host",
             [](RunConfig& c, const KeyValue& v) { c.planner.parameters = place(v); }),
    honoured("prefetch", scalar, "auto", "layers whose weights and activations are fetched ahead: auto, 0 or 1",
             [](RunConfig& c, const KeyValue& v) {
               c.planner.prefetch.reset();
               if (v.json() != "auto") c.planner.prefetch = v.integer(0, 1);
             }),
    honoured("token_tile", scalar, "auto", "tokens in a tile of token-wise work: auto, all or a number",
             [](RunConfig& c, const KeyValue& v) { c.planner.token_tile = v.automatic_or_number(); }),
    honoured("loss_tile", scalar, "auto", "labelled tokens in a tile of the loss: auto, all or a number",
             [](RunConfig& c, const KeyValue& v) { c.planner.loss_tile = v.automatic_or_number(); }),
    honoured("head_group", scalar, "auto", "key-value heads worked on at a time: auto, all or a number",
             [](RunConfig& c, const KeyValue& v) { c.planner.head_group = v.automatic_or_number(); }),
    honoured("kv_block", scalar, "auto", "keys in a block of attention: auto, all or a number",
             [](RunConfig& c, const KeyValue& v) { c.planner.kv_block = v.automatic_or_number(); }),

};

}  // namespace

// Pins of layer_input and attention_output themselves come later and win.
void offload_activations(RunConfig& config) {
  config.planner.layer_input.runs = {{Keep::host, -1}};
  config.planner.attention_output.runs = {{Keep::host, -1}};
}

std::span<const KeyInfo> planner_key_rows() { return kRows; }

}  // namespace megatoken
