// What every rank of a job must have been told alike.
#pragma once

#include <string>

#include "comm/rendezvous/message.h"

namespace megatoken {

// Names the keys whose values differ and both values, some of them when there are many; "" when there are none.
// Both sorted by key. low and high say whose settings they are.
std::string compare_settings(const Settings& low_settings, const Settings& high_settings, const std::string& low,
                             const std::string& high);

}  // namespace megatoken
