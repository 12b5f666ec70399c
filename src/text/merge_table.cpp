#include "text/merge_table.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr std::size_t kShort = 48;             // symbols; below, searching the ranks beats a heap
constexpr std::size_t kKeptSymbols = 1 << 16;  // scratch kept between calls
constexpr std::uint32_t kNone = 0xFFFFFFFFu;

}  // namespace

void MergeScratch::trim() {
  if (nodes.capacity() > kKeptSymbols) std::vector<Node>().swap(nodes);
  if (heap.capacity() > 2 * kKeptSymbols) std::vector<std::uint64_t>().swap(heap);
}

void MergeTable::reserve(int64 count) {
  slots_.assign(table_slots(static_cast<std::size_t>(count)), Slot{-1, -1, 0});
  results_.reserve(static_cast<std::size_t>(count));
}

void MergeTable::add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t result) {
  results_.resize(rank + 1, 0);
  results_[rank] = result;
  std::size_t at = slot(left, right);
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right)) at = next(at);
  slots_[at] = {left, right, rank};
}

void MergeTable::merge(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const {
  if (symbols.size() <= kShort)
    merge_short(symbols);
  else
    merge_long(symbols, scratch);
}

void MergeTable::merge_short(std::vector<std::int32_t>& symbols) const {
  std::int32_t* ids = symbols.data();
  std::size_t n = symbols.size();
  std::uint32_t ranks[kShort];
  for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    ids[best] = results_[ranks[best]];
    --n;
    std::copy(ids + best + 2, ids + n + 1, ids + best + 1);
    if (best + 2 < n) std::copy(ranks + best + 2, ranks + n, ranks + best + 1);
    if (best > 0) ranks[best - 1] = rank(ids[best - 1], ids[best]);
    if (best + 1 < n) ranks[best] = rank(ids[best], ids[best + 1]);
  }
  symbols.resize(n);
}

void MergeTable::merge_long(std::vector<std::int32_t>& symbols, MergeScratch& scratch) const {
  const std::size_t n = symbols.size();
  if (n >= kNone) throw FileError("the text has a word of {} characters; words must be shorter than {}", n, kNone);
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  nodes.resize(n);
  heap.clear();
  const auto entry = [&](std::uint32_t at) { return static_cast<std::uint64_t>(nodes[at].rank) << 32 | at; };
  for (std::uint32_t i = 0; i < n; ++i) {
    const bool last = i + 1 == n;
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, last ? kNone : i + 1,
                last ? kNoRank : rank(symbols[i], symbols[i + 1])};
    if (nodes[i].rank != kNoRank) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](std::uint32_t at) {
    auto& node = nodes[at];
    node.rank = node.next == kNone ? kNoRank : rank(node.id, nodes[node.next].id);
    if (node.rank == kNoRank) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    auto& node = nodes[at];
    if (node.rank != top >> 32) continue;  // merged away, or its neighbour has changed
    auto& gone = nodes[node.next];
    node.id = results_[node.rank];
    node.next = gone.next;
    gone.id = -1;
    gone.rank = kNoRank;
    if (node.next != kNone) nodes[node.next].previous = at;
    if (node.previous != kNone) refresh(node.previous);
    refresh(at);
  }
  symbols.clear();
  for (std::uint32_t at = 0; at != kNone; at = nodes[at].next) symbols.push_back(nodes[at].id);
  scratch.trim();
}

}  // namespace megatoken
