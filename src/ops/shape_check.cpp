#include "ops/shape_check.h"

#include <algorithm>

#include "base/error.h"

namespace megatoken {

void check_view(std::string_view op, std::string_view argument, const View& view, int64 rows, int64 cols,
                std::initializer_list<DType> dtypes) {
  check(view.rows == rows && view.cols == cols && rows >= 0 && cols >= 0, "{}: {} is {}x{}, not {}x{}", op, argument,
        view.rows, view.cols, rows, cols);
  check(std::find(dtypes.begin(), dtypes.end(), view.dtype) != dtypes.end(), "{}: {} is {}", op, argument,
        name_of(view.dtype));
  check(view.rows <= 1 || view.row_stride >= view.cols, "{}: rows of {} overlap: stride {} of {} columns", op, argument,
        view.row_stride, view.cols);
  check(view.empty() || view.data != nullptr, "{}: {} points nowhere", op, argument);
}

void check_optional_view(std::string_view op, std::string_view argument, const View& view, int64 rows, int64 cols,
                         std::initializer_list<DType> dtypes) {
  if (!view.absent()) check_view(op, argument, view, rows, cols, dtypes);
}

void check_count(std::string_view op, std::string_view argument, int64 value, int64 smallest) {
  check(value >= smallest, "{}: {} is {}", op, argument, value);
}

}  // namespace megatoken
