#include "step/step_context.h"

#include "step/bookkeeping.h"

namespace megatoken {

StepContext::StepContext() : book_(std::make_unique<StepBook>()) {}
StepContext::~StepContext() = default;

Buffer StepContext::make_buffer(std::string_view name, Place place, int64 bytes, int64 row_bytes, int64 piece_bytes) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  return begin_buffer(book_->site(*book_->frame().node, name, place), book_->frames.size() - 1, bytes, row_bytes,
                      piece_bytes);
}

Buffer StepContext::begin_buffer(Site& site, std::size_t frame, int64 bytes, int64 row_bytes, int64 piece_bytes) {
  if (site.current != nullptr) {
    if (site.current->held) throw InternalError("two live buffers of site '{}': end the first one before", site.name);
    throw InternalError("site '{}' is used again before compute has waited for {}", site.name,
                        book_->unjoined_access(*site.current));
  }
  LiveBuffer& live = book_->add_buffer();
  live.site = &site;
  live.place = site.place;
  live.bytes = bytes;
  live.row_bytes = row_bytes;
  live.piece_bytes = piece_bytes;
  live.frame_serial = book_->frames[frame].serial;
  try {
    live.address = begin_lifetime(live);
    book_->add_address(live);
  } catch (...) {
    live.address = nullptr;
    book_->remove(live);
    throw;
  }
  live.held = true;
  site.current = &live;
  ++book_->frames[frame].held;
  Buffer buffer;
  buffer.context_ = this;
  buffer.id_ = live.id;
  return buffer;
}

Buffer StepContext::buffer(std::string_view name, int64 rows, int64 cols, DType dtype, Place place) {
  Buffer buffer = make_buffer(name, place, buffer_bytes(name, 1, rows, cols, dtype), cols * size_of(dtype), 0);
  buffer.view_ = View(book_->find(buffer.id_)->address, dtype, rows, cols);
  return buffer;
}

Array StepContext::array(std::string_view name, int64 n, int64 rows, int64 cols, DType dtype, Place place) {
  const int64 piece = align_up(buffer_bytes(name, 1, rows, cols, dtype));
  Array array;
  array.storage_ = make_buffer(name, place, buffer_bytes(name, n, 1, piece, DType::u8), cols * size_of(dtype), piece);
  std::byte* address = book_->find(array.storage_.id_)->address;
  array.storage_.view_ = View(address, DType::u8, 1, n * piece);
  array.first_ = View(address, dtype, rows, cols);
  array.n_ = n;
  array.piece_bytes_ = piece;
  return array;
}

View StepContext::external(std::string_view name, int64 rows, int64 cols, DType dtype, void* data, Place place) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  const int64 bytes = buffer_bytes(name, 1, rows, cols, dtype);
  LiveBuffer* known = book_->find_external(name);
  if (known == nullptr) {
    LiveBuffer& made = book_->add_buffer();
    made.external = std::string(name);
    made.place = place;
    made.bytes = bytes;
    made.row_bytes = cols * size_of(dtype);
    made.data = data;
    try {
      made.address = begin_external(made, static_cast<std::byte*>(data));
      book_->add_address(made);
    } catch (...) {
      made.address = nullptr;
      book_->remove(made);
      throw;
    }
    book_->add_external(made);
    known = &made;
  } else {
    check(known->bytes == bytes && known->place == place && known->data == data,
          "external '{}' is named again as other memory: {} bytes in {} memory, before {} bytes in {} memory", name,
          bytes, name_of(place), known->bytes, name_of(known->place));
  }
  return View(known->address, dtype, rows, cols);
}

Loop StepContext::loop(std::string_view name, int64 n, LoopOptions options) { return Loop(this, name, n, options); }

void StepContext::op(std::string_view name, const Cost& cost, std::initializer_list<Access> accesses, Kernel kernel) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  book_->resolve_all(accesses, name);
  book_->issue_compute();
  Operation operation;
  operation.seq = book_->clocks[0][0];
  operation.name = name;
  operation.cost = &cost;
  operation.accesses = &book_->accesses;
  operation.clock = book_->clocks[0];
  operation.multiplicity = book_->multiplicity();
  perform(operation, std::move(kernel));
}

Ticket StepContext::async(StreamId stream, std::string_view name, const Cost& cost,
                          std::initializer_list<Access> accesses, std::initializer_list<Ticket> after, Kernel kernel) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  check(stream != StreamId::compute, "asynchronous op '{}' on the compute stream", name);
  book_->resolve_all(accesses, name);
  Operation operation;
  operation.stream = stream;
  operation.name = name;
  operation.cost = &cost;
  operation.accesses = &book_->accesses;
  operation.multiplicity = book_->multiplicity();
  book_->issue_async(operation, after);
  perform(operation, std::move(kernel));
  return {stream, operation.seq};
}

void StepContext::wait(const Ticket& ticket, std::string_view why) {
  if (book_->pending_error) std::rethrow_exception(book_->pending_error);
  book_->check_ticket(ticket, why);
  join_ticket(ticket, why);
}

void StepContext::join_ticket(const Ticket& ticket, std::string_view why) {
  if (book_->covered(ticket)) return;
  join(ticket, why);
  book_->join(ticket);
  release_joined();
}

void StepContext::release_joined() {
  auto& lingering = book_->lingering;
  for (std::size_t i = 0; i < lingering.size();) {
    if (!book_->joined(*lingering[i])) {
      ++i;
      continue;
    }
    LiveBuffer& live = *lingering[i];
    lingering.erase(lingering.begin() + static_cast<std::ptrdiff_t>(i));
    end_lifetime(live);
    book_->remove(live);
  }
}

void StepContext::end_buffer(int64 id) noexcept {
  LiveBuffer* live = book_->find(id);
  if (live == nullptr) return;
  live->held = false;
  for (LoopFrame& frame : book_->frames)
    if (frame.serial == live->frame_serial) --frame.held;
  try {
    if (book_->joined(*live)) {
      end_lifetime(*live);
      book_->remove(*live);
    } else {
      book_->lingering.push_back(live);
    }
  } catch (...) {
    if (!book_->pending_error) book_->pending_error = std::current_exception();
  }
}

void StepContext::finish() {
  std::exception_ptr error;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  // A kernel's error comes first: what follows may be its consequence.
  attempt([&] {
    for (const StreamId stream : kAsyncStreams) {
      const Ticket last{stream, book_->clocks[index_of(stream)][index_of(stream)]};
      if (book_->covered(last)) continue;
      join(last, "end of step");
      book_->join(last);
    }
  });
  attempt([&] { drain(); });
  book_->join_all();
  attempt([&] { release_joined(); });
  if (book_->pending_error && !error) error = book_->pending_error;
  attempt([&] {
    check(book_->frames.size() == 1, "finish() inside loop '{}'", book_->frame().node->path);
    book_->for_each([](const LiveBuffer& live) {
      check(!live.held, "buffer '{}' is still held at the end of the step", live.name());
    });
  });
  attempt([&] { forget(); });
  book_->reset();
  if (error) std::rethrow_exception(error);
}

void StepContext::abandon() noexcept {
  try {
    drain();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the step's own exception is what its caller handles
  }
  try {
    forget();
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
  book_->reset();
}

}  // namespace megatoken
