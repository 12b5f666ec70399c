// The configuration files that come with TRL by name (accelerate_config: fsdp2), as what they say about ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megatoken {

// YAML of the profile; nullopt when there is none of that name.
std::optional<std::string> accelerate_profile(std::string_view name);
std::string accelerate_profile_names();

}  // namespace megatoken
