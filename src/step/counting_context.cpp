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

}  // namespace

struct CountingContext::Counts {
  CountedStep step;
  std::vector<int64> site_index;  // by the book's index; -1: not met
  StringMap<std::int32_t> names;
  // Most names are literals: where one was found last, by its address. The text is compared all the same.
  struct Met {
    const char* text = nullptr;
    std::int32_t index = 0;
  };
  std::array<Met, 256> met{};
  int64 time = 0;
  Clock before{};  // ops issued by earlier steps of the context: tickets are counted from the step's start
  bool finished = false;

  explicit Counts(const StepBook& book) {
    step.events.reserve(4096);
    step.sites.reserve(256);
    for (std::size_t s = 0; s < before.size(); ++s) before[s] = book.clocks[s][s];
  }
  Ticket within_step(const Ticket& ticket) const {
    return {ticket.stream, ticket.seq - before[index_of(ticket.stream)]};
  }

  SiteLifetimes& site(const LiveBuffer& buffer) {
    return step.sites[static_cast<std::size_t>(site_index[static_cast<std::size_t>(buffer.site->index)])];
  }

  std::int32_t name(std::string_view text) {
    Met& last = met[(reinterpret_cast<std::uintptr_t>(text.data()) / 8) % met.size()];
    if (last.text != text.data() || step.names[static_cast<std::size_t>(last.index)] != text)
      last = {text.data(), index_of_name(text)};
    return last.index;
  }
  std::int32_t index_of_name(std::string_view text) {
    if (const auto found = names.find(text); found != names.end()) return found->second;
    const auto index = static_cast<std::int32_t>(step.names.size());
    names.emplace(text, index);
    step.names.emplace_back(text);
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
  if (site.lifetimes.empty()) {
    site.lifetimes.reserve(8);
    site.uses.reserve(8);
  }
  site.lifetimes.push_back({now, now});
  site.uses.push_back({now, now});
  return book_->fake_addresses.next(*book_, buffer);
}

void CountingContext::end_lifetime(LiveBuffer& buffer) { counts_->site(buffer).lifetimes.back().end = counts_->time++; }

std::byte* CountingContext::begin_external(LiveBuffer& external, std::byte* /*data*/) {
  counts_->step.externals.push_back({external.external, external.place, external.bytes});
  return book_->fake_addresses.next(*book_, external);
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
