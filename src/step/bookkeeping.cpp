#include "step/bookkeeping.h"

#include <algorithm>

namespace megatoken {
namespace {

// A buffer's id is its slot and a serial number, so that an id of an earlier lifetime is never taken for a later one.
constexpr int kSlotBits = 20;

std::uintptr_t address_of(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void take_in(Clock& clock, const Clock& other) {
  for (std::size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

}  // namespace

int64 buffer_bytes(std::string_view name, int64 count, int64 rows, int64 cols, DType dtype) {
  int64 bytes = size_of(dtype);
  bool bad = count < 0 || rows < 0 || cols < 0;
  for (const int64 factor : {count, rows, cols}) bad = bad || __builtin_mul_overflow(bytes, factor, &bytes);
  check(!bad && bytes < (int64{1} << FakeAddresses::kOffsetBits), "buffer '{}' of {} x {} x {} {}", name, count, rows,
        cols, name_of(dtype));
  return bytes;
}

StepBook::StepBook() : root_(std::make_unique<LoopNode>()) { reset(); }

Site& StepBook::site(LoopNode& node, std::string_view name, Place place) {
  auto& known = node.sites[static_cast<std::size_t>(place)];
  if (const auto found = known.find(name); found != known.end()) return *found->second;
  check(!name.empty() && name.find('/') == std::string_view::npos, "a buffer's name is not empty and has no '/': '{}'",
        name);
  auto made = std::make_unique<Site>();
  made->name = node.path.empty() ? std::string(name) : fmt::format("{}/{}", node.path, name);
  made->place = place;
  made->index = static_cast<int64>(sites.size());
  known.emplace(name, made.get());
  return *sites.emplace_back(std::move(made));
}

const std::vector<Site*>& StepBook::ring_slots(LoopNode& node, std::string_view name, Place place, int64 depth) {
  auto& known = node.rings[static_cast<std::size_t>(place)];
  auto found = known.find(name);
  if (found == known.end()) found = known.emplace(name, std::vector<Site*>()).first;
  std::vector<Site*>& slots = found->second;
  while (static_cast<int64>(slots.size()) < depth)
    slots.push_back(&site(node, fmt::format("{}[{}]", name, slots.size()), place));
  return slots;
}

LoopNode& StepBook::child(LoopNode& node, std::string_view name) {
  if (const auto found = node.loops.find(name); found != node.loops.end()) return *found->second;
  check(!name.empty() && name.find('/') == std::string_view::npos, "a loop's name is not empty and has no '/': '{}'",
        name);
  auto made = std::make_unique<LoopNode>();
  made->path = node.path.empty() ? std::string(name) : fmt::format("{}/{}", node.path, name);
  return *node.loops.emplace(name, std::move(made)).first->second;
}

LiveBuffer& StepBook::add_buffer() {
  if (free_slots_.empty()) {
    check(slots_.size() < (std::size_t{1} << kSlotBits), "too many live buffers");
    free_slots_.push_back(slots_.size());
    slots_.push_back(std::make_unique<LiveBuffer>());
  }
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  LiveBuffer& buffer = *slots_[slot];
  buffer = LiveBuffer();
  buffer.id = (++buffers_made_ << kSlotBits) | static_cast<int64>(slot);
  return buffer;
}

LiveBuffer* StepBook::find(int64 id) {
  const auto slot = static_cast<std::size_t>(id & ((int64{1} << kSlotBits) - 1));
  if (id < 0 || slot >= slots_.size() || slots_[slot]->id != id) return nullptr;
  return slots_[slot].get();
}

void StepBook::add_address(LiveBuffer& buffer) {
  if (buffer.bytes == 0) return;
  const std::uintptr_t begin = address_of(buffer.address);
  const auto at = std::upper_bound(by_address_.begin(), by_address_.end(), begin,
                                   [](std::uintptr_t a, const Address& entry) { return a < entry.begin; });
  const LiveBuffer* before = at == by_address_.begin() ? nullptr : (at - 1)->buffer;
  const LiveBuffer* after = at == by_address_.end() ? nullptr : at->buffer;
  const LiveBuffer* other = nullptr;
  if (before != nullptr && address_of(before->address) + static_cast<std::uintptr_t>(before->bytes) > begin)
    other = before;
  if (after != nullptr && begin + static_cast<std::uintptr_t>(buffer.bytes) > address_of(after->address)) other = after;
  if (other != nullptr)
    throw InternalError("'{}' and '{}' are the same memory under two names", other->name(), buffer.name());
  by_address_.insert(at, {begin, &buffer});
}

void StepBook::remove(LiveBuffer& buffer) {
  if (buffer.bytes > 0 && buffer.address != nullptr) {
    const auto at = std::lower_bound(by_address_.begin(), by_address_.end(), address_of(buffer.address),
                                     [](const Address& entry, std::uintptr_t a) { return entry.begin < a; });
    if (at != by_address_.end() && at->buffer == &buffer) by_address_.erase(at);
  }
  if (buffer.site != nullptr && buffer.site->current == &buffer) buffer.site->current = nullptr;
  free_slots_.push_back(static_cast<std::size_t>(buffer.id & ((int64{1} << kSlotBits) - 1)));
  buffer.id = -1;
}

LiveBuffer* StepBook::find_external(std::string_view name) {
  const auto found = externals_.find(name);
  return found == externals_.end() ? nullptr : found->second;
}

void StepBook::add_external(LiveBuffer& external) { externals_.emplace(external.external, &external); }

LiveBuffer& StepBook::resolve(const View& view, std::string_view op) {
  const std::uintptr_t begin = address_of(view.data);
  const auto at = std::upper_bound(by_address_.begin(), by_address_.end(), begin,
                                   [](std::uintptr_t a, const Address& entry) { return a < entry.begin; });
  LiveBuffer* buffer = at == by_address_.begin() ? nullptr : (at - 1)->buffer;
  const std::uintptr_t offset = buffer == nullptr ? 0 : begin - address_of(buffer->address);
  if (buffer == nullptr || offset >= static_cast<std::uintptr_t>(buffer->bytes)) {
    const std::string_view ended = fake_addresses.name_of(begin);
    if (!ended.empty()) throw InternalError("op '{}' uses buffer '{}' after its end", op, ended);
    throw InternalError("op '{}' uses a view of no live buffer: one that has ended, or memory that is not declared",
                        op);
  }
  check(buffer->held || buffer->site == nullptr, "op '{}' uses buffer '{}' after its end", op, buffer->name());
  check(view.rows >= 0 && view.cols >= 0 && (view.rows <= 1 || view.row_stride >= view.cols) &&
            view.span_bytes() <= buffer->bytes - static_cast<int64>(offset),
        "op '{}' uses {} bytes at {} of '{}', which has {}", op, view.span_bytes(), offset, buffer->name(),
        buffer->bytes);
  return *buffer;
}

void StepBook::resolve_all(std::initializer_list<Access> list, std::string_view op) {
  accesses.clear();
  for (const Access& access : list) {
    if (access.view.empty()) continue;
    accesses.push_back({&resolve(access.view, op), access.view, access.mode});
  }
}

void StepBook::count_acquire(int64 ring, std::string_view name, int64 depth, std::size_t ring_frame) {
  for (std::size_t f = ring_frame + 1; f < frames.size(); ++f) {
    LoopFrame& at = frames[f];
    if (!at.in_period) continue;
    auto use = std::find_if(at.ring_uses.begin(), at.ring_uses.end(), [&](const RingUse& u) { return u.ring == ring; });
    if (use == at.ring_uses.end()) use = at.ring_uses.insert(use, {ring, name, depth, 0});
    use->acquired += frames.back().multiplicity / at.multiplicity;
  }
}

void StepBook::issue_compute() { ++clocks[0][0]; }

void StepBook::check_ticket(const Ticket& ticket, std::string_view who) const {
  const std::size_t s = index_of(ticket.stream);
  check(ticket.seq >= 0 && ticket.seq <= clocks[s][s], "'{}' waits for op {} on {}, where {} were issued", who,
        ticket.seq, name_of(ticket.stream), clocks[s][s]);
}

void StepBook::issue_async(Operation& op, std::initializer_list<Ticket> after) {
  const std::size_t s = index_of(op.stream);
  Clock& clock = clocks[s];
  for (std::size_t i = 0; i < clock.size(); ++i) op.waits_for_compute |= clock[i] < clocks[0][i];
  take_in(clock, clocks[0]);
  for (const Ticket& ticket : after) {
    check_ticket(ticket, op.name);
    if (ticket.seq <= clock[index_of(ticket.stream)]) continue;
    op.after.push_back(ticket);
    take_in(clock, pending(ticket).clock);
  }
  op.seq = ++clock[s];
  op.clock = clock;
  pending_[s].push_back({op.seq, &keep(op.name), clock});
  for (const BufferAccess& access : accesses) access.buffer->async_access[s] = op.seq;
}

PendingOp& StepBook::pending(const Ticket& ticket) {
  auto& list = pending_[index_of(ticket.stream)];
  check(!list.empty() && ticket.seq >= list.front().seq, "op {} on {} is not pending", ticket.seq,
        name_of(ticket.stream));
  return list[static_cast<std::size_t>(ticket.seq - list.front().seq)];
}

void StepBook::join(const Ticket& ticket) {
  take_in(clocks[0], pending(ticket).clock);
  drop_covered();
}

void StepBook::join_all() {
  for (const StreamId stream : kAsyncStreams) take_in(clocks[0], clocks[index_of(stream)]);
  drop_covered();
}

void StepBook::drop_covered() {
  for (std::size_t s = 1; s < pending_.size(); ++s)
    while (!pending_[s].empty() && pending_[s].front().seq <= clocks[0][s]) pending_[s].pop_front();
}

bool StepBook::joined(const LiveBuffer& buffer) const {
  for (std::size_t s = 1; s < buffer.async_access.size(); ++s)
    if (buffer.async_access[s] > clocks[0][s]) return false;
  return true;
}

std::string StepBook::unjoined_access(const LiveBuffer& buffer) {
  for (const StreamId stream : kAsyncStreams) {
    const Ticket last{stream, buffer.async_access[index_of(stream)]};
    if (!covered(last)) return fmt::format("'{}' on {}", *pending(last).name, name_of(stream));
  }
  return "nothing";
}

void StepBook::reset() {
  join_all();
  for (auto& slot : slots_)
    if (slot->id >= 0) remove(*slot);
  by_address_.clear();
  externals_.clear();
  lingering.clear();
  accesses.clear();
  pending_error = nullptr;
  frames.clear();
  LoopFrame& step = frames.emplace_back();
  step.node = root_.get();
  step.serial = next_serial();
}

bool StepBook::occupied(const std::byte* address) const {
  const auto at = std::lower_bound(by_address_.begin(), by_address_.end(), address_of(address),
                                   [](const Address& entry, std::uintptr_t a) { return entry.begin < a; });
  return at != by_address_.end() && at->begin == address_of(address);
}

const std::string& StepBook::keep(std::string_view text) {
  const auto found = kept_.find(text);
  return found != kept_.end() ? *found : *kept_.emplace(text).first;
}

std::byte* FakeAddresses::next(StepBook& book, const LiveBuffer& buffer) {
  constexpr std::uint64_t kIndices = (std::uint64_t{1} << (64 - kOffsetBits)) - 2;
  std::uint64_t index = 0;
  std::byte* address = nullptr;
  do {
    index = made_++ % kIndices;
    address = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>((index + 1) << kOffsetBits));
  } while (book.occupied(address));
  if (names_.size() <= index) names_.resize(index + 1);
  names_[index] = buffer.site != nullptr ? &buffer.site->name : &book.keep(buffer.external);
  return address;
}

std::string_view FakeAddresses::name_of(std::uintptr_t address) const {
  const std::uint64_t index = (static_cast<std::uint64_t>(address) >> kOffsetBits) - 1;
  return index < names_.size() ? std::string_view(*names_[index]) : std::string_view();
}

}  // namespace megatoken
