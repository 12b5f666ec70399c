// Where this process runs, for the other ranks to know.
#pragma once

#include "comm/rendezvous/message.h"

namespace megatoken {

// Everything of a Peer but its address.
Peer this_host();

}  // namespace megatoken
