#include "train/planner/levers.h"

#include <algorithm>

#include "base/byte_text.h"

namespace megatoken {
namespace {

struct Engaged {
  std::string name;
  const char* key;  // that pins it
  Choice without;
};

int64 count(const std::vector<Keep>& layers, Keep keep) { return std::count(layers.begin(), layers.end(), keep); }

std::string layers_text(int64 some, std::size_t all) {
  return some == static_cast<int64>(all) ? "" : fmt::format(" of {} of {} layers", some, all);
}

std::vector<Engaged> engaged(const Choice& initial, const Choice& chosen) {
  std::vector<Engaged> found;
  const Policy &now = chosen.policy, &before = initial.policy;
  const auto add = [&](bool differs, const std::string& name, const char* key, auto undo) {
    if (!differs) return;
    found.push_back({name, key, chosen});
    undo(found.back().without);
  };
  add(now.token_tile != before.token_tile, fmt::format("token tiles of {}", now.token_tile), "token_tile",
      [&](Choice& c) { c.policy.token_tile = before.token_tile; });
  add(now.loss_tile != before.loss_tile, fmt::format("loss tiles of {}", now.loss_tile), "loss_tile",
      [&](Choice& c) { c.policy.loss_tile = before.loss_tile; });
  add(now.head_groups != before.head_groups, fmt::format("{} head groups", now.head_groups), "head_group",
      [&](Choice& c) { c.policy.head_groups = before.head_groups; });
  add(now.kv_block != before.kv_block, fmt::format("key blocks of {}", now.kv_block), "kv_block",
      [&](Choice& c) { c.policy.kv_block = before.kv_block; });
  const auto moved = [&](std::vector<Keep> Policy::*layers, Keep to, const std::string& what, const char* how,
                         const char* key) {
    const auto &all = now.*layers, &pinned = before.*layers;
    const int64 some = all == pinned ? 0 : count(all, to);
    add(some > 0, fmt::format("{}{} {}", what, layers_text(some, all.size()), how), key, [&](Choice& c) {
      // What is recomputed would wait where the other layers' do.
      const Keep otherwise = to == Keep::recompute && count(all, Keep::host) > 0 ? Keep::host : Keep::device;
      std::replace((c.policy.*layers).begin(), (c.policy.*layers).end(), to, otherwise);
    });
  };
  moved(&Policy::layer_input, Keep::host, "layer inputs", "to host", "layer_input");
  moved(&Policy::attention_output, Keep::host, "attention outputs", "to host", "attention_output");
  const auto state = [&](Place StatePlaces::*array, const char* name, const char* key) {
    add(chosen.places.*array != initial.places.*array, name, key,
        [&](Choice& c) { c.places.*array = initial.places.*array; });
  };
  state(&StatePlaces::optimizer, "optimizer state to host", "optimizer_state");
  state(&StatePlaces::gradients, "gradients to host", "gradients");
  state(&StatePlaces::weights, "parameters to host", "parameters");
  add(now.exchange != before.exchange, "ring exchange of keys", "parallelism_config_cp_comm_strategy",
      [&](Choice& c) { c.policy.exchange = before.exchange; });
  add(now.prefetch != before.prefetch, "nothing fetched ahead", "prefetch",
      [&](Choice& c) { c.policy.prefetch = before.prefetch; });
  moved(&Policy::layer_input, Keep::recompute, "layer inputs", "recomputed", "layer_input");
  moved(&Policy::attention_output, Keep::recompute, "attention", "run again", "attention_output");
  return found;
}

}  // namespace

std::vector<Lever> explain_levers(PolicySearch& search, const Choice& chosen, const PlanBudget& budget) {
  std::vector<Lever> levers;
  const auto place = [](const ChoiceSize& size, Place where) { return size.bytes[static_cast<std::size_t>(where)]; };
  const ChoiceSize with = search.size(chosen);
  const std::vector<Engaged> levers_engaged = engaged(search.initial(), chosen);
  std::vector<Choice> without;
  for (const Engaged& lever : levers_engaged) without.push_back(lever.without);
  search.count_ahead(without);
  for (const Engaged& lever : levers_engaged) {
    const ChoiceSize alone = search.size(lever.without);
    const int64 device = place(alone, Place::device), host = place(alone, Place::host);
    Lever said{lever.name, "", device - place(with, Place::device), with.step_time_s - alone.step_time_s, lever.key};
    if (said.costs_s < 0) {
      said.reason = "faster here";
    } else if (budget.shared) {
      said.saves_bytes += host - place(with, Place::host);
      said.reason = fmt::format("{:.2f} of {:.2f} GiB without it", gib(device + host), gib(budget.host_bytes));
    } else if (host - place(with, Place::host) > said.saves_bytes) {
      said.saves_bytes = host - place(with, Place::host);
      said.reason = fmt::format("{:.2f} of {:.2f} GiB on the host without it", gib(host), gib(budget.host_bytes));
    } else {
      said.reason = fmt::format("{:.2f} of {:.2f} GiB on the device without it", gib(device), gib(budget.device_bytes));
    }
    levers.push_back(std::move(said));
  }
  return levers;
}

}  // namespace megatoken
