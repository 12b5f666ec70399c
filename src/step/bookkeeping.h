// What every StepContext knows about the step at hand: how far each stream has come and what it has waited for (vector
// clocks), which sites there are, which buffers live. Internal to src/step and its tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plan/plan.h"
#include "step/step_context.h"

namespace megatoken {

// Element s: everything of stream s up to this number is done before.
using Clock = std::array<int64, kNumStreams>;
// Checked against overflow and negative numbers.
int64 buffer_bytes(std::string_view name, int64 count, int64 rows, int64 cols, DType dtype);
constexpr std::size_t index_of(StreamId stream) { return static_cast<std::size_t>(stream); }
constexpr std::array<StreamId, 3> kAsyncStreams = {StreamId::h2d, StreamId::d2h, StreamId::exchange};

struct StringHash {
  using is_transparent = void;
  // Of the length and both ends: names are few and short, and are looked up for every buffer.
  std::size_t operator()(std::string_view s) const {
    std::uint64_t head = 0, tail = 0;
    const std::size_t n = std::min(s.size(), sizeof head);
    std::memcpy(&head, s.data(), n);
    std::memcpy(&tail, s.data() + s.size() - n, n);
    const std::uint64_t mixed = (head ^ (tail << 23 | tail >> 41) ^ s.size()) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
  }
};
template <typename T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

struct Site {
  std::string name;  // "layer/tile/gate"
  Place place = Place::device;
  int64 index = 0;                       // in order of first use
  LiveBuffer* current = nullptr;         // the lifetime at hand, also after its scope until its accesses are joined
  const PlannedSite* planned = nullptr;  // in the context's plan, once looked up
};

// A lifetime of a site, or an external.
struct LiveBuffer {
  int64 id = -1;
  Site* site = nullptr;  // nullptr: an external
  std::string external;  // its name
  Place place = Place::device;
  std::byte* address = nullptr;
  const void* data = nullptr;  // an external: as the program gave it
  int64 bytes = 0;
  int64 row_bytes = 0;     // as it was made: rows of this many bytes
  int64 piece_bytes = 0;   // an array: from one piece to the next; else 0
  int64 offset = 0;        // in the arena (contexts with a plan)
  bool held = false;       // the scope has not ended
  int64 frame_serial = 0;  // of the loop iteration it was made in
  Clock async_access{};    // the last access on each asynchronous stream

  const std::string& name() const { return site != nullptr ? site->name : external; }
};

struct BufferAccess {
  LiveBuffer* buffer = nullptr;
  View view;
  AccessMode mode = AccessMode::in;
  int64 offset() const { return view.data - buffer->address; }
};

struct Operation {
  StreamId stream = StreamId::compute;
  int64 seq = 0;
  std::string_view name;
  const Cost* cost = nullptr;
  const std::vector<BufferAccess>* accesses = nullptr;  // without the empty ones
  std::vector<Ticket> after;                            // named by the program, already covered ones left out
  bool waits_for_compute = false;                       // compute's position is news to the stream
  Clock clock{};                                        // what is done before it, itself included
  int64 multiplicity = 1;
};

// An asynchronous op that compute has not waited for.
struct PendingOp {
  int64 seq = 0;
  const std::string* name = nullptr;  // the book's
  Clock clock{};
};

struct LoopNode {
  std::string path;  // "layer/tile", empty at the root
  StringMap<std::unique_ptr<LoopNode>> loops;
  std::array<StringMap<Site*>, kNumPlaces> sites;
  std::array<StringMap<std::vector<Site*>>, kNumPlaces> rings;  // slots, as many as were ever asked for
};

// Acquires of a ring in the period at hand of a collapsed loop, from outside of which the ring is.
struct RingUse {
  int64 ring = 0;
  std::string_view name;  // the book's
  int64 depth = 0;
  int64 acquired = 0;
};

// A loop being run, or the step itself (frames[0]).
struct LoopFrame {
  LoopNode* node = nullptr;
  int64 serial = 0;        // of the iteration
  int64 held = 0;          // buffers of the iteration whose scope has not ended
  int64 multiplicity = 1;  // iterations that the one at hand stands for, outer loops included
  bool in_period = false;  // between begin_period and end_period
  std::vector<RingUse> ring_uses;
};

// Addresses for contexts without memory: each lifetime has its own, so that a stale view is found out and named. Never
// dereferenced. The low bits are the offset in the buffer.
class FakeAddresses {
 public:
  static constexpr int kOffsetBits = 44;
  std::byte* next(StepBook& book, const LiveBuffer& buffer);
  // Of the lifetime, maybe ended, that the address was given to; empty when it was given to none.
  std::string_view name_of(std::uintptr_t address) const;

 private:
  std::vector<const std::string*> names_;  // the book's, by index; reused in a circle when they run out
  std::uint64_t made_ = 0;
};

class StepBook {
 public:
  StepBook();

  // The same text for as long as the book is there.
  const std::string& keep(std::string_view text);

  FakeAddresses fake_addresses;

  std::array<Clock, kNumStreams> clocks{};  // what each stream has waited for; own element: ops issued
  std::vector<LoopFrame> frames;
  std::vector<std::unique_ptr<Site>> sites;
  std::vector<LiveBuffer*> lingering;  // scope ended, asynchronous accesses not joined
  std::vector<BufferAccess> accesses;  // of the op at hand
  std::exception_ptr pending_error;    // raised where nothing may be thrown
  bool ring_waits = true;              // false plants a fault: tests of the checking context

  LoopFrame& frame() { return frames.back(); }
  int64 multiplicity() const { return frames.back().multiplicity; }
  Site& site(LoopNode& node, std::string_view name, Place place);
  // At least `depth` sites, "name[0]" and so on.
  const std::vector<Site*>& ring_slots(LoopNode& node, std::string_view name, Place place, int64 depth);
  LoopNode& child(LoopNode& node, std::string_view name);
  int64 next_serial() { return ++serial_; }

  LiveBuffer& add_buffer();
  // nullptr when it is not there any more (the step was abandoned).
  LiveBuffer* find(int64 id);
  void add_address(LiveBuffer& buffer);
  void remove(LiveBuffer& buffer);
  // Whether a buffer begins at this address.
  bool occupied(const std::byte* address) const;
  template <typename F>
  void for_each(F&& f) {
    for (auto& slot : slots_)
      if (slot->id >= 0) f(*slot);
  }

  LiveBuffer* find_external(std::string_view name);
  void add_external(LiveBuffer& external);

  // The buffer that the view lies in. InternalError naming the op when there is none or the view leaves it.
  LiveBuffer& resolve(const View& view, std::string_view op);
  // Fills `accesses`.
  void resolve_all(std::initializer_list<Access> list, std::string_view op);

  void count_acquire(int64 ring, std::string_view name, int64 depth, std::size_t ring_frame);

  // Issues an op: advances the clocks, marks the accesses. `after` must name tickets of this context.
  void issue_compute();
  void issue_async(Operation& op, std::initializer_list<Ticket> after);
  // Whether compute's clock covers the ticket; if not, its pending op.
  bool covered(const Ticket& ticket) const { return ticket.seq <= clocks[0][index_of(ticket.stream)]; }
  void check_ticket(const Ticket& ticket, std::string_view who) const;
  PendingOp& pending(const Ticket& ticket);
  // compute's clock takes in the ticket's; pending ops it covers are dropped.
  void join(const Ticket& ticket);
  void join_all();
  bool joined(const LiveBuffer& buffer) const;
  // "'fetch' on host-to-device": the last access that compute has not joined.
  std::string unjoined_access(const LiveBuffer& buffer);

  // Back to the start of a step; clocks and sites stay.
  void reset();

 private:
  struct Address {
    std::uintptr_t begin;
    LiveBuffer* buffer;
  };
  std::unique_ptr<LoopNode> root_;
  int64 serial_ = 0;
  int64 buffers_made_ = 0;
  std::vector<std::unique_ptr<LiveBuffer>> slots_;
  std::vector<std::size_t> free_slots_;
  std::vector<Address> by_address_;  // ascending
  StringMap<LiveBuffer*> externals_;
  std::unordered_set<std::string, StringHash, std::equal_to<>> kept_;
  std::array<std::deque<PendingOp>, kNumStreams> pending_;

  void drop_covered();
};

}  // namespace megatoken
