#include "step/checking_context.h"

#include <algorithm>
#include <unordered_map>

#include "step/bookkeeping.h"
#include "step/placement.h"
#include "step/strided_bytes.h"
#include "step/written_bytes.h"

namespace megatoken {
namespace {

// All memories on one line: the arenas, then every external at its own address.
int64 line_begin(const LiveBuffer& buffer) {
  if (buffer.site == nullptr) return static_cast<int64>(reinterpret_cast<std::uintptr_t>(buffer.address) >> 1);
  return buffer.offset + (buffer.place == Place::host ? int64{1} << 42 : 0);
}

}  // namespace

// compute's accesses precede whatever is issued later on any stream (asynchronous ops wait for compute's position), and
// so do those that compute has joined: only asynchronous accesses that compute has not joined can be in a race.
struct CheckingContext::Shadow {
  Shadow(StepBook& book, std::shared_ptr<const Plan> plan) : placement(book, std::move(plan)) {}

  struct OpenAccess {
    StridedBytes bytes;
    bool writes = false;
    StreamId stream = StreamId::compute;
    int64 seq = 0;
    std::shared_ptr<const std::string> op;
    std::string buffer;
  };
  Placement placement;
  std::vector<OpenAccess> open;
  std::unordered_map<int64, std::vector<WrittenBytes>> written;  // by buffer id, one per piece
};

CheckingContext::CheckingContext(std::shared_ptr<const Plan> plan)
    : shadow_(std::make_unique<Shadow>(*book_, std::move(plan))) {}
CheckingContext::~CheckingContext() = default;

std::byte* CheckingContext::begin_lifetime(LiveBuffer& buffer) {
  shadow_->placement.begin(buffer);
  const int64 pieces = buffer.piece_bytes > 0 ? buffer.bytes / buffer.piece_bytes : 1;
  shadow_->written[buffer.id].assign(static_cast<std::size_t>(pieces), WrittenBytes(buffer.row_bytes));
  return book_->fake_addresses.next(*book_, buffer);
}

void CheckingContext::end_lifetime(LiveBuffer& buffer) {
  shadow_->placement.end(buffer);
  shadow_->written.erase(buffer.id);
}

std::byte* CheckingContext::begin_external(LiveBuffer& external, std::byte* /*data*/) {
  return book_->fake_addresses.next(*book_, external);
}

void CheckingContext::perform(const Operation& operation, Kernel /*kernel*/) {
  Shadow& shadow = *shadow_;
  const auto& accesses = *operation.accesses;
  for (const BufferAccess& access : accesses) {
    const StridedBytes bytes = strided_bytes(access.view, line_begin(*access.buffer) + access.offset());
    const bool writes = access.mode != AccessMode::in;
    for (const Shadow::OpenAccess& open : shadow.open) {
      if (!writes && !open.writes) continue;
      if (open.seq <= operation.clock[index_of(open.stream)]) continue;
      if (!intersect(bytes, open.bytes)) continue;
      throw InternalError("race: '{}' on {} {} '{}' while '{}' on {} {} '{}', and does not wait for it", operation.name,
                          name_of(operation.stream), writes ? "writes" : "reads", access.buffer->name(), *open.op,
                          name_of(open.stream), open.writes ? "writes" : "reads", open.buffer);
    }
  }
  const auto written_of = [&](const BufferAccess& access) -> std::pair<WrittenBytes&, StridedBytes> {
    auto& pieces = shadow.written.at(access.buffer->id);
    const int64 offset = access.offset();
    const int64 piece = access.buffer->piece_bytes > 0 ? offset / access.buffer->piece_bytes : 0;
    const StridedBytes bytes = strided_bytes(access.view, offset - piece * access.buffer->piece_bytes);
    check(access.buffer->piece_bytes == 0 || bytes.end() <= access.buffer->piece_bytes,
          "op '{}' uses more than one piece of array '{}' at once", operation.name, access.buffer->name());
    return {pieces[static_cast<std::size_t>(piece)], bytes};
  };
  for (const BufferAccess& access : accesses) {
    if (access.buffer->site == nullptr || access.mode == AccessMode::out) continue;
    const auto [written, bytes] = written_of(access);
    check(written.covers(bytes), "op '{}' on {} reads bytes of '{}' that nothing has written", operation.name,
          name_of(operation.stream), access.buffer->name());
  }
  for (const BufferAccess& access : accesses) {
    if (access.buffer->site == nullptr || access.mode == AccessMode::in) continue;
    const auto [written, bytes] = written_of(access);
    written.write(bytes);
  }
  if (operation.stream == StreamId::compute) return;
  const auto name = std::make_shared<const std::string>(operation.name);
  for (const BufferAccess& access : accesses)
    shadow.open.push_back({strided_bytes(access.view, line_begin(*access.buffer) + access.offset()),
                           access.mode != AccessMode::in, operation.stream, operation.seq, name,
                           access.buffer->name()});
}

void CheckingContext::join(const Ticket& ticket, std::string_view /*why*/) {
  const Clock clock = book_->pending(ticket).clock;
  std::erase_if(shadow_->open,
                [&](const Shadow::OpenAccess& open) { return open.seq <= clock[index_of(open.stream)]; });
}

void CheckingContext::forget() {
  shadow_->placement.clear();
  shadow_->open.clear();
  shadow_->written.clear();
}

void check_step(const Plan& plan, const std::function<void(StepContext&)>& step) {
  CheckingContext context(std::make_shared<Plan>(plan));
  step(context);
  context.finish();
}

}  // namespace megatoken
