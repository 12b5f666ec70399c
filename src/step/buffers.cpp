// Buffer, Ring and Array: the handles of step_context.h.
#include <utility>

#include "step/bookkeeping.h"
#include "step/step_context.h"

namespace megatoken {

Buffer::Buffer(Buffer&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)), id_(std::exchange(other.id_, -1)), view_(other.view_) {
  other.view_ = View();
}

Buffer& Buffer::operator=(Buffer&& other) {
  if (this == &other) return *this;
  reset();
  context_ = std::exchange(other.context_, nullptr);
  id_ = std::exchange(other.id_, -1);
  view_ = std::exchange(other.view_, View());
  return *this;
}

Buffer::~Buffer() { reset(); }

void Buffer::reset() {
  if (context_ == nullptr) return;
  StepContext* context = std::exchange(context_, nullptr);
  view_ = View();
  context->end_buffer(std::exchange(id_, -1));
}

struct Ring::State {
  StepContext* context = nullptr;
  std::string_view name;                      // the book's
  const std::vector<Site*>* slots = nullptr;  // the book's; the first `depth` are this ring's
  std::size_t depth = 0;
  std::size_t frame = 0;  // where the ring was made
  int64 frame_serial = 0;
  int64 serial = 0;
  int64 bytes = 0;
  int64 rows = 0;
  int64 cols = 0;
  DType dtype = DType::f32;
  std::size_t acquired = 0;
};

Ring StepContext::ring(std::string_view name, int64 depth, int64 rows, int64 cols, DType dtype, Place place) {
  check(depth >= 1, "ring '{}' of depth {}", name, depth);
  Ring ring;
  ring.state_ = std::make_shared<Ring::State>();
  Ring::State& state = *ring.state_;
  state.context = this;
  state.name = book_->keep(name);
  state.frame = book_->frames.size() - 1;
  state.frame_serial = book_->frame().serial;
  state.serial = book_->next_serial();
  state.bytes = buffer_bytes(name, 1, rows, cols, dtype);
  state.rows = rows;
  state.cols = cols;
  state.dtype = dtype;
  state.slots = &book_->ring_slots(*book_->frame().node, name, place, depth);
  state.depth = static_cast<std::size_t>(depth);
  return ring;
}

Buffer Ring::acquire() {
  check(state_ != nullptr, "acquire() of no ring");
  return acquire(state_->rows);
}

Buffer Ring::acquire(int64 rows) {
  check(state_ != nullptr, "acquire() of no ring");
  return state_->context->acquire(*state_, rows);
}

Buffer StepContext::acquire(Ring::State& ring, int64 rows) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  check(rows >= 0 && rows <= ring.rows, "ring '{}' has {} rows, {} are asked for", ring.name, ring.rows, rows);
  check(ring.frame < book_->frames.size() && book_->frames[ring.frame].serial == ring.frame_serial,
        "ring '{}' is used after the loop iteration it was made in", ring.name);
  const std::size_t depth = ring.depth;
  Site& slot = *(*ring.slots)[ring.acquired % depth];
  if (slot.current != nullptr) {
    check(!slot.current->held, "ring '{}' is asked for one more than its {} slots", ring.name, depth);
    if (book_->ring_waits)
      for (const StreamId stream : kAsyncStreams)
        if (slot.current != nullptr) join_ticket({stream, slot.current->async_access[index_of(stream)]}, ring.name);
  }
  book_->count_acquire(ring.serial, ring.name, static_cast<int64>(depth), ring.frame);
  Buffer buffer = begin_buffer(slot, ring.frame, ring.bytes, ring.cols * size_of(ring.dtype), 0);
  ++ring.acquired;
  buffer.view_ = View(book_->find(buffer.id_)->address, ring.dtype, rows, ring.cols);
  return buffer;
}

void Ring::reset() { state_.reset(); }
int64 Ring::depth() const { return state_ == nullptr ? 0 : static_cast<int64>(state_->depth); }

View Array::at(int64 i) const {
  check(storage_.held() && i >= 0 && i < n_, "piece {} of an array of {}", i, storage_.held() ? n_ : 0);
  View piece = first_;
  piece.data += i * piece_bytes_;
  return piece;
}

void Array::reset() {
  storage_.reset();
  n_ = 0;
}

}  // namespace megatoken
