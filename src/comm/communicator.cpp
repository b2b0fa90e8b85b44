#include "comm/communicator.h"

#include <algorithm>
#include <utility>

#include "comm/operation.h"

namespace sauropod::comm {
namespace {

double seconds(Operation::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

void check_tensor(std::string_view label, const char* what, const at::Tensor& tensor) {
  SAUROPOD_CHECK(tensor.defined(), "{}: the {} is no tensor", label, what);
  SAUROPOD_CHECK(tensor.is_contiguous(), "{}: the {} is not contiguous", label, what);
  switch (tensor.scalar_type()) {
    case at::kFloat: case at::kDouble: case at::kBFloat16: case at::kInt: case at::kLong: case at::kByte:
      return;
    default:
      SAUROPOD_CHECK(false, "{}: the {} has elements of another type", label, what);
  }
}

// Gather and scatter: `whole` [offsets.back()] holds all ranks' parts, `part` this rank's.
void check_parts(std::string_view label, const at::Tensor& part, const at::Tensor& whole,
                 const std::vector<int64_t>& offsets, int rank, int size) {
  check_tensor(label, "part", part);
  check_tensor(label, "whole", whole);
  SAUROPOD_CHECK(part.scalar_type() == whole.scalar_type(), "{}: part and whole differ in type", label);
  SAUROPOD_CHECK(offsets.size() == static_cast<size_t>(size) + 1, "{}: {} offsets for {} ranks", label,
                 offsets.size(), size);
  SAUROPOD_CHECK(offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()) &&
                     offsets.back() == whole.numel(),
                 "{}: offsets don't rise from 0 to {}", label, whole.numel());
  SAUROPOD_CHECK(part.numel() == offsets[rank + 1] - offsets[rank], "{}: part of {} elements, expected {}",
                 label, part.numel(), offsets[rank + 1] - offsets[rank]);
}

std::vector<int64_t> equal_offsets(int64_t part, int size) {
  std::vector<int64_t> offsets(static_cast<size_t>(size) + 1);
  for (int i = 0; i <= size; ++i) offsets[i] = part * i;
  return offsets;
}

std::shared_ptr<Operation> make(Kind kind, std::string_view label) {
  auto operation = std::make_shared<Operation>();
  operation->kind = kind;
  operation->label = std::string(label);
  return operation;
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce: return "all-reduce";
    case Kind::all_gather: return "all-gather";
    case Kind::reduce_scatter: return "reduce-scatter";
    case Kind::broadcast: return "broadcast";
    case Kind::barrier: return "barrier";
    case Kind::exchange: return "exchange";
  }
  return "unknown";
}

Communicator::Communicator(std::string name, int rank, std::vector<int> ranks,
                           std::chrono::milliseconds timeout, std::shared_ptr<FlightRecorder> recorder)
    : name_(std::move(name)),
      rank_(rank),
      ranks_(std::move(ranks)),
      timeout_(timeout),
      statistics_(std::make_shared<Statistics>()),
      recorder_(std::move(recorder)) {
  SAUROPOD_CHECK(rank >= 0 && rank < size(), "rank {} in a group of {}", rank, size());
  if (recorder_) recorded_group_ = recorder_->open_group(name_, ranks_, rank_, timeout_);
}

Communicator::~Communicator() {
  if (recorder_) recorder_->close_group(recorded_group_);
}

Handle Communicator::start(std::shared_ptr<Operation> operation) {
  operation->statistics = statistics_;
  operation->number = operation->kind == Kind::exchange ? ++exchanges_ : ++collectives_;
  {
    std::lock_guard lock(statistics_->mutex);
    auto [at, fresh] = statistics_->index.try_emplace(operation->label, statistics_->calls.size());
    if (fresh) statistics_->calls.push_back({.label = operation->label, .kind = operation->kind});
    CallStatistics& calls = statistics_->calls[at->second];
    ++calls.calls;
    calls.bytes += operation->bytes;
  }
  if (recorder_) operation->entry = recorder_->issue(recorded_group_, *operation);
  issue(operation);
  return Handle(std::move(operation));
}

Handle Communicator::all_reduce(std::string_view label, at::Tensor tensor, Reduce reduce) {
  check_tensor(label, "tensor", tensor);
  auto operation = make(Kind::all_reduce, label);
  operation->reduce = reduce;
  operation->bytes = static_cast<int64_t>(tensor.nbytes());
  operation->output = std::move(tensor);
  return start(std::move(operation));
}

Handle Communicator::all_gather(std::string_view label, at::Tensor input, at::Tensor output) {
  auto offsets = equal_offsets(input.numel(), size());
  return all_gather(label, std::move(input), std::move(output), std::move(offsets));
}

Handle Communicator::all_gather(std::string_view label, at::Tensor input, at::Tensor output,
                                std::vector<int64_t> offsets) {
  check_parts(label, input, output, offsets, rank_, size());
  auto operation = make(Kind::all_gather, label);
  operation->bytes = static_cast<int64_t>(output.nbytes());
  operation->input = std::move(input);
  operation->output = std::move(output);
  operation->offsets = std::move(offsets);
  return start(std::move(operation));
}

Handle Communicator::reduce_scatter(std::string_view label, at::Tensor input, at::Tensor output,
                                    Reduce reduce) {
  auto offsets = equal_offsets(output.numel(), size());
  return reduce_scatter(label, std::move(input), std::move(output), std::move(offsets), reduce);
}

Handle Communicator::reduce_scatter(std::string_view label, at::Tensor input, at::Tensor output,
                                    std::vector<int64_t> offsets, Reduce reduce) {
  check_parts(label, output, input, offsets, rank_, size());
  auto operation = make(Kind::reduce_scatter, label);
  operation->reduce = reduce;
  operation->bytes = static_cast<int64_t>(input.nbytes());
  operation->input = std::move(input);
  operation->output = std::move(output);
  operation->offsets = std::move(offsets);
  return start(std::move(operation));
}

Handle Communicator::broadcast(std::string_view label, at::Tensor tensor, int root) {
  check_tensor(label, "tensor", tensor);
  SAUROPOD_CHECK(root >= 0 && root < size(), "{}: root {} of {} ranks", label, root, size());
  auto operation = make(Kind::broadcast, label);
  operation->root = root;
  operation->bytes = static_cast<int64_t>(tensor.nbytes());
  operation->output = std::move(tensor);
  return start(std::move(operation));
}

Handle Communicator::barrier(std::string_view label) { return start(make(Kind::barrier, label)); }

Handle Communicator::exchange(std::string_view label, std::vector<Transfer> sends,
                              std::vector<Transfer> receives) {
  auto operation = make(Kind::exchange, label);
  for (const auto* transfers : {&sends, &receives})
    for (const Transfer& transfer : *transfers) {
      check_tensor(label, "tensor", transfer.tensor);
      SAUROPOD_CHECK(transfer.peer >= 0 && transfer.peer < size() && transfer.peer != rank_,
                     "{}: peer {} of rank {} in {} ranks", label, transfer.peer, rank_, size());
      operation->bytes += static_cast<int64_t>(transfer.tensor.nbytes());
    }
  operation->sends = std::move(sends);
  operation->receives = std::move(receives);
  return start(std::move(operation));
}

std::vector<CallStatistics> Communicator::statistics() const {
  std::lock_guard lock(statistics_->mutex);
  return statistics_->calls;
}

// ---- Operation ---------------------------------------------------------------------------------------

void Operation::started() {
  entry.started();
  std::lock_guard lock(mutex_);
  started_ = Clock::now();
}

std::optional<Operation::Clock::duration> Operation::age() {
  std::lock_guard lock(mutex_);
  const auto& begin = waiter && !detached ? blocked_ : started_;
  if (!begin) return std::nullopt;
  return Clock::now() - *begin;
}

void Operation::finish() {
  entry.finished();
  std::unique_lock lock(mutex_);
  if (std::exchange(done_, true)) return;
  const double busy = started_ ? seconds(Clock::now() - *started_) : 0;
  changed_.notify_all();
  lock.unlock();
  release();
  std::lock_guard counting(statistics->mutex);
  statistics->calls[statistics->index.find(label)->second].busy_seconds += busy;
}

void Operation::release() {
  std::vector<Transfer> gone_sends, gone_receives;
  at::Tensor gone_input, gone_output;
  std::lock_guard lock(mutex_);
  gone_sends.swap(sends), gone_receives.swap(receives);
  gone_input = std::exchange(input, {}), gone_output = std::exchange(output, {});
}

void Operation::fail(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (std::exchange(done_, true)) return;
  error_ = std::move(error);
  changed_.notify_all();
}

bool Operation::done() {
  std::lock_guard lock(mutex_);
  return done_;
}

void Operation::wait() {
  const auto begin = Clock::now();
  {
    std::unique_lock lock(mutex_);
    const bool first = !std::exchange(waited_, true);
    if (!done_) {
      entry.blocked();
      if (!blocked_) blocked_ = begin;
      if (first && waiter) {
        lock.unlock();
        waiter();
        lock.lock();
      }
      if (!detached) changed_.wait(lock, [&] { return done_; });
    }
    if (error_) std::rethrow_exception(error_);
    if (!first) return;
  }
  if (detached) return release();
  const double exposed = seconds(Clock::now() - begin);
  std::lock_guard lock(statistics->mutex);
  statistics->calls[statistics->index.find(label)->second].exposed_seconds += exposed;
}

void Operation::dropped() noexcept {
  std::lock_guard lock(mutex_);
  const bool excused = waited_ || error_ || std::uncaught_exceptions() > 0;
  SAUROPOD_CHECK(excused, "the handle of {} '{}' was dropped without wait()", name_of(kind), label);
}

// ---- Handle --------------------------------------------------------------------------------------------

Handle::Handle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

Handle::~Handle() {
  if (operation_) operation_->dropped();
}

Handle& Handle::operator=(Handle&& other) {
  if (operation_ && this != &other) operation_->dropped();
  operation_ = std::move(other.operation_);
  return *this;
}

void Handle::wait() {
  if (operation_) operation_->wait();
}

bool Handle::done() const { return !operation_ || operation_->done(); }

}  // namespace sauropod::comm
