#include "parallel/bucket.h"

#include <fmt/format.h>

namespace megatoken {

std::vector<StoredTensor> stored_tensors(const ParameterSpec& p) {
  std::vector<StoredTensor> tensors;
  if (p.experts == 0 || p.stored_names.empty()) {
    std::vector<int64> shape{p.rows, p.cols};
    if (p.vector) shape = {p.cols};
    if (p.experts > 0) shape = {p.experts, p.rows / p.experts, p.cols};
    tensors.push_back({p.stored_names.empty() ? p.name : p.stored_names.front(), std::move(shape), 0, p.elements()});
    return tensors;
  }
  const int64 rows = p.rows / p.experts / static_cast<int64>(p.stored_names.size());
  for (int64 e = 0; e < p.experts; ++e)
    for (const std::string& name : p.stored_names)
      tensors.push_back({fmt::format(fmt::runtime(name), e),
                         {rows, p.cols},
                         static_cast<int64>(tensors.size()) * rows * p.cols,
                         rows * p.cols});
  return tensors;
}

}  // namespace megatoken
