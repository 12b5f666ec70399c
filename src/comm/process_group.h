// The group of all ranks of a job whose ranks are processes (or threads that share nothing), over Gloo's TCP transport.
#pragma once

#include <chrono>
#include <memory>

#include "comm/group.h"
#include "comm/rendezvous/rendezvous.h"

namespace megatoken {

// Whether the program was built with Gloo.
bool has_process_groups();

// host: without stream operations, for groups whose data moves otherwise (NCCL) and that need the host's alone.
enum class GroupUse { all, host };

// Connects this rank to every other. Collective. The group and all that are split from it share the rendezvous' abort
// state: whoever fails, or is lost, wakes every blocked operation of every rank with the first reason.
// GLOO_SOCKET_IFNAME, when set, is the network interface that data takes; else it is the one that reaches rank 0.
// A rank that does not come to an operation within `timeout` aborts the job.
// ConfigError when the program was built without Gloo; TrainError when ranks can't reach each other.
std::shared_ptr<Group> create_process_group(std::shared_ptr<Rendezvous> rendezvous, GroupUse use = GroupUse::all,
                                            std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace megatoken
