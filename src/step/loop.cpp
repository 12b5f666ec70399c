// Loop of step_context.h: which iterations are visited, and what must hold at their borders.
#include "step/bookkeeping.h"
#include "step/step_context.h"

namespace megatoken {

// Collapsing visits P iterations, one period of P that stands for `repeats` of them, and P to 2P - 1 more: state that
// crosses iterations (a ring of depth <= P) meets every neighbour that it meets in the flat loop. A reverse loop visits
// the same set of indices as a forward one, so that what one leaves per iteration the other finds.
Loop::Loop(StepContext* context, std::string_view name, int64 n, LoopOptions options)
    : context_(context), name_(name), n_(n), options_(options), visits_(n) {
  check(n >= 0 && options.period >= 1, "loop '{}' of {} iterations, period {}", name, n, options.period);
  const int64 period = options.period;
  if (!options.collapse || !context->collapses() || n < 4 * period) return;
  repeats_ = (n - period) / period - 1;
  const int64 rest = n - period - repeats_ * period;
  head_ = options.reverse ? rest : period;
  visits_ = 2 * period + rest;
}

int64 Loop::index() const {
  const int64 skipped = n_ - visits_;
  if (repeats_ == 1) return options_.reverse ? n_ - 1 - visit_ : visit_;
  if (!options_.reverse) return visit_ < 2 * options_.period ? visit_ : visit_ + skipped;
  return visit_ < head_ ? n_ - 1 - visit_ : visits_ - 1 - visit_;
}

bool Loop::in_period() const { return repeats_ > 1 && visit_ >= head_ && visit_ < head_ + options_.period; }

Loop::Iterator Loop::begin() {
  check(!begun_, "loop '{}' runs twice", name_);
  begun_ = true;
  if (n_ == 0) return end();
  StepBook& book = *context_->book_;
  if (book.pending_error) std::rethrow_exception(book.pending_error);
  LoopNode& node = book.child(*book.frame().node, name_);
  frame_ = book.frames.size();
  book.frames.emplace_back().node = &node;
  start_visit();
  Iterator iterator;
  iterator.loop_ = this;
  return iterator;
}

void Loop::start_visit() {
  StepBook& book = *context_->book_;
  LoopFrame& frame = book.frames[frame_];
  if (in_period() && visit_ == head_) {
    context_->begin_period(repeats_);
    frame.in_period = true;
    frame.ring_uses.clear();
  }
  frame.serial = book.next_serial();
  frame.held = 0;
  frame.multiplicity = book.frames[frame_ - 1].multiplicity * (in_period() ? repeats_ : 1);
}

void Loop::end_visit() {
  StepBook& book = *context_->book_;
  if (book.pending_error) std::rethrow_exception(book.pending_error);
  check(book.frames.size() == frame_ + 1, "loop '{}' goes on inside loop '{}'", name_, book.frame().node->path);
  LoopFrame& frame = book.frames[frame_];
  if (frame.held > 0)
    book.for_each([&](const LiveBuffer& live) {
      check(!live.held || live.frame_serial != frame.serial, "buffer '{}' escapes its iteration of loop '{}'",
            live.name(), name_);
    });
  if (in_period() && visit_ + 1 == head_ + options_.period) {
    for (const RingUse& use : frame.ring_uses)
      check(use.acquired % use.depth == 0,
            "ring '{}' of depth {} is acquired {} times in a period ({}) of loop '{}': the period must be a multiple "
            "of it",
            use.name, use.depth, use.acquired, options_.period, name_);
    frame.in_period = false;
    context_->end_period(repeats_);
  }
}

void Loop::next() {
  end_visit();
  if (++visit_ < visits_) {
    start_visit();
    return;
  }
  context_->book_->frames.pop_back();
  frame_ = 0;
}

Loop::~Loop() {
  if (frame_ == 0) return;
  StepBook& book = *context_->book_;
  if (book.frames.size() <= frame_) return;  // the step was abandoned meanwhile
  book.frames.resize(frame_);
  if (!book.pending_error)
    book.pending_error = std::make_exception_ptr(InternalError("loop '{}' is left before its end", name_));
}

int64 Loop::Iterator::operator*() const { return loop_->index(); }

Loop::Iterator& Loop::Iterator::operator++() {
  loop_->next();
  if (loop_->frame_ == 0) loop_ = nullptr;
  return *this;
}

bool Loop::Iterator::operator!=(const Iterator& end) const { return loop_ != end.loop_; }

}  // namespace megatoken
