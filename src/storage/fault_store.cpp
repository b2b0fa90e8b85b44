#include "storage/fault_store.h"

#include <csignal>
#include <thread>

namespace sauropod::storage {
namespace {

const char* cause_text(Cause cause) {
  switch (cause) {
    case Cause::missing:
      return "it does not exist";
    case Cause::no_space:
      return "the disk is full";
    case Cause::read_only:
      return "the file system is read-only";
    case Cause::damaged:
      return "the disk can't read it";
    case Cause::unavailable:
      return "the store does not answer";
  }
  return "";
}

[[noreturn]] void raise(const Fault& fault, const std::string& name) {
  throw StoreError(fault.cause, fmt::format("{}: {} (injected)", name, cause_text(fault.cause)));
}

}  // namespace

class FaultUpload : public Upload {
 public:
  FaultUpload(FaultStore& owner, std::string key, uint64_t size)
      : owner_(owner), key_(std::move(key)), upload_(owner.store_.create(key_, size)) {}

  void write(const void* data, size_t size) override {
    if (const auto fault = owner_.begin(Operation::write, key_)) {
      upload_->write(data, size / 2);
      raise(*fault, owner_.describe(key_));
    }
    upload_->write(data, size);
  }

  void commit() override {
    const auto fault = owner_.begin(Operation::commit, key_);
    upload_->commit();
    if (!fault) return;
    const std::string whole = owner_.store_.get(key_, UINT64_MAX);
    owner_.store_.put(key_, std::string_view(whole).substr(0, whole.size() / 2));
  }

 private:
  FaultStore& owner_;
  const std::string key_;
  std::unique_ptr<Upload> upload_;
};

void FaultStore::add(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(fault);
}

void FaultStore::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  counts_.assign(counts_.size(), 0);
}

uint64_t FaultStore::count(Operation operation) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(operation)];
}

std::optional<Fault> FaultStore::begin(Operation operation, const std::string& key) const {
  std::optional<Fault> struck;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t of_any = ++counts_[static_cast<size_t>(Operation::any)];
    const uint64_t of_kind = ++counts_[static_cast<size_t>(operation)];
    for (const Fault& fault : faults_) {
      if (fault.operation != Operation::any && fault.operation != operation) continue;
      const uint64_t number = fault.operation == Operation::any ? of_any : of_kind;
      if (number == fault.nth || (fault.repeat && number > fault.nth)) struck = fault;
    }
  }
  if (!struck) return std::nullopt;
  switch (struck->effect) {
    case Fault::Effect::error:
      raise(*struck, describe(key));
    case Fault::Effect::delay:
      std::this_thread::sleep_for(struck->delay);
      return std::nullopt;
    case Fault::Effect::kill:
      ::raise(SIGKILL);
      return std::nullopt;
    case Fault::Effect::short_write:
      if (operation != Operation::write) raise(*struck, describe(key));
      return struck;
    case Fault::Effect::truncate:
      return operation == Operation::commit ? struck : std::nullopt;
    case Fault::Effect::flip_byte:
      return operation == Operation::read ? struck : std::nullopt;
  }
  return std::nullopt;
}

std::unique_ptr<Upload> FaultStore::create(const std::string& key, uint64_t size) {
  begin(Operation::create, key);
  return std::make_unique<FaultUpload>(*this, key, size);
}

void FaultStore::read(const std::string& key, uint64_t offset, size_t size, void* out) const {
  const auto fault = begin(Operation::read, key);
  store_.read(key, offset, size, out);
  if (fault && size > 0) static_cast<char*>(out)[size / 2] ^= 1;
}

std::vector<ObjectInfo> FaultStore::list(const std::string& prefix) const {
  begin(Operation::list, prefix);
  return store_.list(prefix);
}

std::optional<uint64_t> FaultStore::size(const std::string& key) const {
  begin(Operation::size, key);
  return store_.size(key);
}

void FaultStore::remove(const std::string& key) {
  begin(Operation::remove, key);
  store_.remove(key);
}

void FaultStore::remove_unfinished(const std::string& prefix) {
  begin(Operation::remove, prefix);
  store_.remove_unfinished(prefix);
}

std::string FaultStore::describe(const std::string& key) const { return store_.describe(key); }

}  // namespace sauropod::storage
