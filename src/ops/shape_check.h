// What validate() of every op is made of: each throws InternalError naming the op and the argument.
#pragma once

#include <initializer_list>
#include <string_view>

#include "tensor/view.h"

namespace megatoken {

inline constexpr std::initializer_list<DType> kFloatTypes = {DType::f32, DType::bf16};

// The view has this shape and one of these dtypes, its rows do not overlap, and it points somewhere unless empty.
void check_view(std::string_view op, std::string_view argument, const View& view, int64 rows, int64 cols,
                std::initializer_list<DType> dtypes);
// As check_view, or absent.
void check_optional_view(std::string_view op, std::string_view argument, const View& view, int64 rows, int64 cols,
                         std::initializer_list<DType> dtypes);
void check_count(std::string_view op, std::string_view argument, int64 value, int64 smallest);

}  // namespace megatoken
