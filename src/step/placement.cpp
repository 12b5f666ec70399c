#include "step/placement.h"

#include <algorithm>

namespace megatoken {

Placement::Placement(StepBook& book, std::shared_ptr<const Plan> plan) : book_(book), plan_(std::move(plan)) {
  check(plan_ != nullptr, "a context needs a plan");
}

void Placement::use_plan(std::shared_ptr<const Plan> plan) {
  check(plan != nullptr, "a context needs a plan");
  for (const auto& used : used_) check(used.empty(), "the plan is changed while buffers live");
  plan_ = std::move(plan);
  for (const auto& site : book_.sites) site->planned = nullptr;
}

void Placement::begin(LiveBuffer& buffer) {
  Site& site = *buffer.site;
  if (site.planned == nullptr) site.planned = plan_->find(site.name, site.place);
  if (site.planned == nullptr)
    throw InternalError("buffer '{}' ({}) is not in the plan", site.name, name_of(site.place));
  if (buffer.bytes > site.planned->bytes)
    throw InternalError("buffer '{}' ({}) needs {} bytes, the plan has {}", site.name, name_of(site.place),
                        buffer.bytes, site.planned->bytes);
  buffer.offset = site.planned->offset;
  if (buffer.bytes == 0) return;
  auto& used = used_[static_cast<std::size_t>(site.place)];
  const int64 end = buffer.offset + buffer.bytes;
  const auto at = std::upper_bound(used.begin(), used.end(), buffer.offset,
                                   [](int64 offset, const Range& range) { return offset < range.begin; });
  LiveBuffer* other = nullptr;
  if (at != used.begin() && (at - 1)->end > buffer.offset) other = (at - 1)->buffer;
  if (at != used.end() && at->begin < end) other = at->buffer;
  if (other != nullptr) {
    const std::string because =
        other->held ? "which lives" : "before compute has waited for " + book_.unjoined_access(*other);
    throw InternalError("buffer '{}' is planned over bytes of '{}' ({}), {}", site.name, other->name(),
                        name_of(site.place), because);
  }
  used.insert(at, {buffer.offset, end, &buffer});
}

void Placement::end(const LiveBuffer& buffer) {
  if (buffer.bytes == 0) return;
  auto& used = used_[static_cast<std::size_t>(buffer.place)];
  const auto at = std::lower_bound(used.begin(), used.end(), buffer.offset,
                                   [](const Range& range, int64 offset) { return range.begin < offset; });
  if (at != used.end() && at->buffer == &buffer) used.erase(at);
}

void Placement::clear() {
  for (auto& used : used_) used.clear();
}

}  // namespace megatoken
