#include "spec/accelerate_profiles.h"

namespace megatoken {
namespace {

// Only the keys that have an effect here. Every profile of TRL 1.16 asks for 8 processes and bf16.
struct Profile {
  std::string_view name, distributed_type;
};
constexpr Profile kProfiles[] = {{"fsdp1", "FSDP"},        {"fsdp2", "FSDP"},      {"multi_gpu", "MULTI_GPU"},
                                 {"single_gpu", "\"NO\""}, {"zero1", "DEEPSPEED"}, {"zero2", "DEEPSPEED"},
                                 {"zero3", "DEEPSPEED"}};

}  // namespace

std::optional<std::string> accelerate_profile(std::string_view name) {
  for (const Profile& profile : kProfiles)
    if (profile.name == name)
      return "distributed_type: " + std::string(profile.distributed_type) +
             "\nmixed_precision: bf16\nnum_machines: 1\nmachine_rank: 0\nnum_processes: 8\n";
  return std::nullopt;
}

std::string accelerate_profile_names() {
  std::string names;
  for (const Profile& profile : kProfiles) names += (names.empty() ? "" : ", ") + std::string(profile.name);
  return names;
}

}  // namespace megatoken
