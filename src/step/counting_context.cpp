#include "step/counting_context.h"

#include <algorithm>

#include "step/bookkeeping.h"

namespace megatoken {
namespace {

WorkKind work_kind(CostKind kind) {
  switch (kind) {
    case CostKind::memory:
      return WorkKind::memory;
    case CostKind::gemm:
      return WorkKind::gemm;
    case CostKind::attention_forward:
      return WorkKind::attention_forward;
    case CostKind::attention_backward:
      return WorkKind::attention_backward;
    case CostKind::transfer:
      return WorkKind::transfer;
    case CostKind::exchange:
      return WorkKind::exchange;
  }
  return WorkKind::memory;
}

// Sums in extended precision: integers stay exact up to 2^64, so collapsed and flat counts agree to the last bit.
struct Sum {
  int64 ops = 0;
  long double flops = 0;
  long double bytes = 0;

  void add(const Cost& cost, int64 multiplicity) {
    ops += multiplicity;
    flops += static_cast<long double>(cost.flops) * static_cast<long double>(multiplicity);
    bytes += static_cast<long double>(cost.bytes) * static_cast<long double>(multiplicity);
  }
  WorkTotal total() const { return {ops, static_cast<double>(flops), static_cast<double>(bytes)}; }
};

}  // namespace

struct CountingContext::Counts {
  CountedStep step;
  std::vector<int64> site_index;  // by the book's index; -1: not met
  StringMap<std::int32_t> names;
  std::vector<Sum> by_name;
  std::array<Sum, kNumWorkKinds> by_kind;
  std::array<Sum, kNumStreams> by_stream;
  int64 time = 0;
  Clock before{};  // ops issued by earlier steps of the context: tickets are counted from the step's start
  bool finished = false;

  explicit Counts(const StepBook& book) {
    for (std::size_t s = 0; s < before.size(); ++s) before[s] = book.clocks[s][s];
  }
  Ticket within_step(const Ticket& ticket) const {
    return {ticket.stream, ticket.seq - before[index_of(ticket.stream)]};
  }

  SiteLifetimes& site(const LiveBuffer& buffer) {
    return step.sites[static_cast<std::size_t>(site_index[static_cast<std::size_t>(buffer.site->index)])];
  }

  std::int32_t name(std::string_view text) {
    if (const auto found = names.find(text); found != names.end()) return found->second;
    const auto index = static_cast<std::int32_t>(step.names.size());
    names.emplace(text, index);
    step.names.emplace_back(text);
    by_name.emplace_back();
    return index;
  }
};

CountingContext::CountingContext(bool collapse) : collapse_(collapse), counts_(std::make_unique<Counts>(*book_)) {}
CountingContext::~CountingContext() = default;

std::byte* CountingContext::begin_lifetime(LiveBuffer& buffer) {
  auto& sites = counts_->step.sites;
  auto& index = counts_->site_index;
  const auto known = static_cast<std::size_t>(buffer.site->index);
  if (index.size() <= known) index.resize(known + 1, -1);
  if (index[known] < 0) {
    index[known] = static_cast<int64>(sites.size());
    sites.push_back({buffer.site->name, buffer.site->place, 0, {}, {}});
  }
  SiteLifetimes& site = counts_->site(buffer);
  site.bytes = std::max(site.bytes, buffer.bytes);
  const int64 now = counts_->time++;
  site.lifetimes.push_back({now, now});
  site.uses.push_back({now, now});
  return book_->fake_addresses.next(*book_, buffer.name());
}

void CountingContext::end_lifetime(LiveBuffer& buffer) { counts_->site(buffer).lifetimes.back().end = counts_->time++; }

std::byte* CountingContext::begin_external(LiveBuffer& external, std::byte* /*data*/) {
  counts_->step.externals.push_back({external.external, external.place, external.bytes});
  return book_->fake_addresses.next(*book_, external.external);
}

void CountingContext::perform(const Operation& operation, Kernel /*kernel*/) {
  Counts& counts = *counts_;
  const int64 now = counts.time++;
  for (const BufferAccess& access : *operation.accesses) {
    if (access.buffer->site == nullptr) continue;
    Interval& use = counts.site(*access.buffer).uses.back();
    if (use.end == use.begin) use.begin = now;
    use.end = now + 1;
  }
  StepEvent event;
  event.stream = operation.stream;
  event.kind = work_kind(operation.cost->kind);
  event.name = counts.name(operation.name);
  event.seq = counts.within_step({operation.stream, operation.seq}).seq;
  event.flops = operation.cost->flops;
  event.bytes = operation.cost->bytes;
  event.units = operation.cost->units;
  event.multiplicity = operation.multiplicity;
  event.first_after = static_cast<std::int64_t>(counts.step.after.size());
  event.num_after = static_cast<std::int64_t>(operation.after.size());
  for (const Ticket& ticket : operation.after) counts.step.after.push_back(counts.within_step(ticket));
  counts.step.events.push_back(event);
  counts.by_name[static_cast<std::size_t>(event.name)].add(*operation.cost, operation.multiplicity);
  counts.by_kind[static_cast<std::size_t>(event.kind)].add(*operation.cost, operation.multiplicity);
  counts.by_stream[index_of(operation.stream)].add(*operation.cost, operation.multiplicity);
}

void CountingContext::join(const Ticket& ticket, std::string_view why) {
  StepEvent event;
  event.type = StepEvent::Type::join;
  event.stream = ticket.stream;
  event.seq = counts_->within_step(ticket).seq;
  event.name = counts_->name(why);
  event.multiplicity = book_->multiplicity();
  counts_->step.events.push_back(event);
}

void CountingContext::begin_period(int64 repeats) {
  StepEvent event;
  event.type = StepEvent::Type::period_begin;
  event.multiplicity = repeats;
  counts_->step.events.push_back(event);
}

void CountingContext::end_period(int64 repeats) {
  StepEvent event;
  event.type = StepEvent::Type::period_end;
  event.multiplicity = repeats;
  counts_->step.events.push_back(event);
}

void CountingContext::forget() { counts_->finished = true; }

CountedStep CountingContext::take() {
  Counts& counts = *counts_;
  check(counts.finished, "a counted step is taken before finish()");
  for (std::size_t i = 0; i < counts.by_name.size(); ++i)
    if (counts.by_name[i].ops > 0) counts.step.by_name[counts.step.names[i]] = counts.by_name[i].total();
  for (std::size_t i = 0; i < counts.by_kind.size(); ++i) counts.step.by_kind[i] = counts.by_kind[i].total();
  for (std::size_t i = 0; i < counts.by_stream.size(); ++i) counts.step.by_stream[i] = counts.by_stream[i].total();
  counts.step.end_time = counts.time;
  compute_peaks(counts.step);
  CountedStep step = std::move(counts.step);
  counts_ = std::make_unique<Counts>(*book_);
  return step;
}

CountedStep count_step(const std::function<void(StepContext&)>& step, bool collapse) {
  CountingContext context(collapse);
  step(context);
  context.finish();
  return context.take();
}

}  // namespace megatoken
