#include "data/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "data/digest.h"

namespace megatoken {

int64 count_targets(std::span<const std::int32_t> labels) {
  if (labels.empty()) return 0;
  return static_cast<int64>(labels.size()) - 1 - std::count(labels.begin() + 1, labels.end(), kNoLabel);
}

const PreparedDataset::Row& PreparedDataset::at(int64 row) const {
  check(row >= 0 && row < rows(), "row {} of {}", row, rows());
  return rows_[static_cast<std::size_t>(row)];
}

std::int32_t PreparedDataset::label(int64 row, int64 i) const {
  const Row& r = at(row);
  check(i >= 0 && i < r.length, "token {} of row {}, which has {}", i, row, r.length);
  switch (r.labels) {
    case Labels::ids_from:
      return i >= r.first_label ? r.ids[i] : kNoLabel;
    case Labels::bits:
      return (r.bits[i / 64] >> (i % 64)) & 1 ? r.ids[i] : kNoLabel;
    case Labels::values:
      return r.values[i];
  }
  return kNoLabel;
}

std::optional<int64> PreparedDataset::first_label(int64 row) const {
  if (at(row).labels != Labels::ids_from) return std::nullopt;
  return at(row).first_label;
}

void PreparedDataset::copy_targets(int64 row, std::span<std::int32_t> out) const {
  const Row& r = at(row);
  check(static_cast<int64>(out.size()) == r.length, "{} targets of row {}, which has {} tokens", out.size(), row,
        r.length);
  if (r.length == 0) return;
  const auto last = static_cast<std::size_t>(r.length - 1);
  switch (r.labels) {
    case Labels::ids_from: {
      const auto masked = static_cast<std::size_t>(std::clamp<int64>(r.first_label - 1, 0, r.length - 1));
      std::fill_n(out.begin(), masked, kNoLabel);
      std::copy(r.ids + masked + 1, r.ids + r.length, out.begin() + static_cast<std::ptrdiff_t>(masked));
      break;
    }
    case Labels::bits:
      for (std::size_t i = 0; i < last; ++i)
        out[i] = (r.bits[(i + 1) / 64] >> ((i + 1) % 64)) & 1 ? r.ids[i + 1] : kNoLabel;
      break;
    case Labels::values:
      std::copy(r.values + 1, r.values + r.length, out.begin());
      break;
  }
  out[last] = kNoLabel;
}

void PreparedDataset::append(Row row, std::span<const std::int32_t> ids, int64 targets) {
  row.length = static_cast<int64>(ids.size());
  std::int32_t* room = values_.grow(row.length);
  std::copy(ids.begin(), ids.end(), room);
  row.ids = room;
  rows_.push_back(row);
  tokens_ += row.length;
  targets_ += targets;
  longest_ = std::max(longest_, row.length);
}

void PreparedDataset::add(std::span<const std::int32_t> ids, int64 first_label) {
  Row row{};
  row.labels = Labels::ids_from;
  row.first_label = first_label;
  append(row, ids, std::max<int64>(0, static_cast<int64>(ids.size()) - std::max<int64>(1, first_label)));
}

void PreparedDataset::add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  check(ids.size() == labels.size(), "{} labels for {} ids", labels.size(), ids.size());
  const auto n = static_cast<int64>(ids.size());
  int64 first = 0;
  while (first < n && labels[static_cast<std::size_t>(first)] == kNoLabel) ++first;
  const auto from = static_cast<std::ptrdiff_t>(first);
  if (std::equal(labels.begin() + from, labels.end(), ids.begin() + from)) return add(ids, first);

  Row row{};
  const bool ids_or_none =
      std::equal(labels.begin(), labels.end(), ids.begin(),
                 [](std::int32_t label, std::int32_t id) { return label == id || label == kNoLabel; });
  if (ids_or_none) {
    row.labels = Labels::bits;
    const int64 words = (n + 63) / 64;
    std::uint64_t* bits = bits_.grow(words);
    std::fill_n(bits, words, 0);
    for (int64 i = 0; i < n; ++i)
      if (labels[static_cast<std::size_t>(i)] != kNoLabel) bits[i / 64] |= std::uint64_t{1} << (i % 64);
    row.bits = bits;
  } else {
    row.labels = Labels::values;
    std::int32_t* values = values_.grow(n);
    std::copy(labels.begin(), labels.end(), values);
    row.values = values;
  }
  append(row, ids, count_targets(labels));
}

std::uint64_t PreparedDataset::fingerprint() const {
  Digest digest;
  for (const Row& row : rows_) {
    digest.add(row.length);
    digest.add_bytes(row.ids, row.length * 4);
    digest.add(static_cast<int64>(row.labels));
    switch (row.labels) {
      case Labels::ids_from:
        digest.add(row.first_label);
        break;
      case Labels::bits:
        digest.add_bytes(row.bits, (row.length + 63) / 64 * 8);
        break;
      case Labels::values:
        digest.add_bytes(row.values, row.length * 4);
        break;
    }
  }
  return digest.value();
}

}  // namespace megatoken
