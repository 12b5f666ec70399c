// Assignments that SortByExpert ranks at a time: the unit of its workspace.
#pragma once

#include "base/dtype.h"

namespace megatoken {

inline constexpr int64 kSortPiece = 1024;

}  // namespace megatoken
