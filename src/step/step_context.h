// One description of a step for three readers: a counting context (the plan), a checking context (a race and overlap
// detector over planned bytes) and an executing context. The step function is written once against this interface.
//
// Rules (docs/step_context.md has the reasons):
//  - A buffer's scope is its lifetime; its site is (path of enclosing loops, name). A site has one offset and may live
//    many times, but never twice at once: two live buffers of one site are an error by name.
//  - compute work is in program order on the calling thread's stream. An asynchronous op waits for compute's position
//  at
//    its issue and for the tickets it names. compute waits for asynchronous work only through wait(), Ring::acquire()
//    and finish().
//  - Accesses are declared exactly; kernels touch nothing else. Kernels may not capture references to step locals.
//  - Bytes are free for others when the scope has ended and compute has waited for every asynchronous access to them.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/device.h"
#include "ops/cost.h"
#include "plan/stream_id.h"
#include "tensor/view.h"

namespace megatoken {

enum class AccessMode : std::uint8_t { in, out, inout };
struct Access {
  View view;
  AccessMode mode;
};
inline Access in(const View& v) { return {v, AccessMode::in}; }
inline Access out(const View& v) { return {v, AccessMode::out}; }
inline Access inout(const View& v) { return {v, AccessMode::inout}; }

using Kernel = std::function<void(Stream&)>;

class StepContext;
class StepBook;
struct Site;
struct LiveBuffer;
struct Operation;

// A planned piece of the arena. Move-only; the destructor or reset() ends its lifetime (in program order of compute).
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other);  // ends the old lifetime first
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  void reset();
  bool held() const { return context_ != nullptr; }
  const View& view() const { return view_; }
  operator const View&() const { return view_; }

 private:
  friend class StepContext;
  StepContext* context_ = nullptr;
  int64 id_ = -1;
  View view_;
};

// `depth` equal slots used in turn. acquire() hands out the next slot, after making compute wait for the asynchronous
// accesses of the slot's previous user; acquiring a slot that is still held is an error by name.
class Ring {
 public:
  Ring() = default;
  Ring(Ring&&) noexcept = default;
  Ring& operator=(Ring&&) = default;
  // rows <= the ring's rows: a smaller true shape.
  Buffer acquire();
  Buffer acquire(int64 rows);
  void reset();
  int64 depth() const;

 private:
  friend class StepContext;
  struct State;
  std::shared_ptr<State> state_;
};

// n equal pieces that live from the array's creation to its reset: per-layer state between forward and backward.
class Array {
 public:
  Array() = default;
  Array(Array&&) noexcept = default;
  Array& operator=(Array&&) = default;
  View at(int64 i) const;
  void reset();
  bool held() const { return storage_.held(); }

 private:
  friend class StepContext;
  Buffer storage_;
  View first_;  // piece 0
  int64 n_ = 0;
  int64 piece_bytes_ = 0;  // from one piece to the next
};

// for (int64 i : ctx.loop("tile", n)) {...}. A body's buffers must end with the iteration (rings and arrays of the
// outer scope carry state across iterations); one that escapes is refused by name. Collapsing: a counting context with
// collapse on visits the edges and one period and multiplies; then costs of the skipped iterations must equal those of
// the visited ones at the same place of the period. `period` must be a multiple of every ring depth used across
// iterations. An iteration that differs from its neighbours (another policy, a shorter tile) begins a new loop or is
// the last one.
struct LoopOptions {
  bool reverse = false;  // n-1, ..., 0
  bool collapse = true;
  int64 period = 2;
};

class Loop {
 public:
  class Iterator {
   public:
    int64 operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& end) const;

   private:
    friend class Loop;
    Loop* loop_ = nullptr;
  };
  Loop(Loop&&) = delete;
  ~Loop();
  Iterator begin();
  Iterator end() { return Iterator(); }

 private:
  friend class StepContext;
  Loop(StepContext* context, std::string_view name, int64 n, LoopOptions options);
  int64 index() const;     // of the visit at hand
  bool in_period() const;  // the visit at hand stands for repeats_ iterations
  void start_visit();
  void end_visit();
  void next();

  StepContext* context_;
  std::string name_;
  int64 n_;
  LoopOptions options_;
  // Collapsed: head_ iterations, then one period standing for repeats_ of them, then the rest. Flat: repeats_ is 1.
  int64 head_ = 0;
  int64 repeats_ = 1;
  int64 visits_ = 0;
  int64 visit_ = 0;
  std::size_t frame_ = 0;  // in the book while running; 0: not running
  bool begun_ = false;
};

class StepContext {
 public:
  virtual ~StepContext();
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  // Names are the field's terms, lower case, e.g. "q", "attention output": the plan's table shows them.
  // Contents are undefined. A view's data pointer may be dereferenced by kernels only.
  Buffer buffer(std::string_view name, int64 rows, int64 cols, DType dtype, Place place = Place::device);
  Ring ring(std::string_view name, int64 depth, int64 rows, int64 cols, DType dtype, Place place = Place::device);
  Array array(std::string_view name, int64 n, int64 rows, int64 cols, DType dtype, Place place = Place::device);
  // State that outlives the step: weights, masters, host inputs. Not in the arena; the pointer may be null in counting
  // and checking. The same name must always mean the same memory.
  View external(std::string_view name, int64 rows, int64 cols, DType dtype, void* data, Place place = Place::device);

  Loop loop(std::string_view name, int64 n, LoopOptions options = {});

  void op(std::string_view name, const Cost& cost, std::initializer_list<Access> accesses, Kernel kernel);
  Ticket async(StreamId stream, std::string_view name, const Cost& cost, std::initializer_list<Access> accesses,
               std::initializer_list<Ticket> after, Kernel kernel);
  // compute waits; the host does not (except on the CPU, where compute is the host). `why` is printed in traces.
  void wait(const Ticket& ticket, std::string_view why);
  // Joins every stream. Errors of kernels surface here. A buffer still held is an error by name. The context can then
  // run the next step.
  void finish();

  // After an exception has left the step function: joins every stream, drops errors and forgets the step. The context
  // can then run the next step. (finish() does the same when it throws.)
  void abandon() noexcept;

  // True when kernels really run: for reading back results on the host after finish(), never for branching in a step.
  virtual bool executing() const = 0;

 protected:
  StepContext();

  // What differs between contexts. The book (bookkeeping.h) knows streams' clocks, sites and lifetimes; these are
  // called with it up to date.
  virtual bool collapses() const { return false; }
  // A lifetime begins; returns its address. Throws when the site cannot have it.
  virtual std::byte* begin_lifetime(LiveBuffer& buffer) = 0;
  // A lifetime is over: scope ended and every asynchronous access joined. Its bytes are free.
  virtual void end_lifetime(LiveBuffer& buffer) = 0;
  // A new external; returns the address that stands for `data`.
  virtual std::byte* begin_external(LiveBuffer& external, std::byte* data) = 0;
  virtual void perform(const Operation& operation, Kernel kernel) = 0;
  // compute waits for a ticket that its clock does not cover yet.
  virtual void join(const Ticket& ticket, std::string_view why) = 0;
  virtual void begin_period(int64 /*repeats*/) {}
  virtual void end_period(int64 /*repeats*/) {}
  // Every stream is joined: waits for them and rethrows the first error of a kernel.
  virtual void drain() = 0;
  // After finish() or abandon(): nothing of the step remains.
  virtual void forget() {}

  std::unique_ptr<StepBook> book_;

 private:
  friend class Buffer;
  friend class Ring;
  friend class Loop;

  Buffer make_buffer(std::string_view name, Place place, int64 bytes, int64 row_bytes, int64 piece_bytes);
  Buffer begin_buffer(Site& site, std::size_t frame, int64 bytes, int64 row_bytes, int64 piece_bytes);
  Buffer acquire(Ring::State& ring, int64 rows);
  void end_buffer(int64 id) noexcept;
  void join_ticket(const Ticket& ticket, std::string_view why);
  void release_joined();
};

}  // namespace megatoken
