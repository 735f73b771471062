#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/object.hpp>
#include <tenon/session.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon {

struct WeightSet::HostCopies {
  ForkAwareMutex mutex{"WeightSet"};
  std::map<std::string, Buffer> by_name;
};

struct WeightSet::Computed {
  ForkAwareMutex mutex{"WeightSet"};
  std::map<std::string, std::weak_ptr<const Buffer>> by_name;
};

WeightSet::WeightSet(std::map<std::string, Buffer> weights, std::shared_ptr<PreparedCache> prepared)
    : weights_(std::move(weights)),
      prepared_(prepared != nullptr ? std::move(prepared) : std::make_shared<PreparedCache>()),
      copies_(std::make_shared<HostCopies>()),
      computed_(std::make_shared<Computed>()) {}

const Buffer* WeightSet::find(const std::string& name) const noexcept {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

Buffer WeightSet::on_host(const std::string& name) const {
  const Buffer* const weight = find(name);
  if (weight == nullptr) {
    throw Error(Errc::bad_reference, "WeightSet", fmt::format("no weight '{}'", name));
  }
  if (!weight->has_data()) {
    throw Error(Errc::call_order, "WeightSet", fmt::format("weight '{}' has no data", name));
  }
  if (weight->data().has_cptr()) return *weight;
  const std::scoped_lock lock(copies_->mutex);
  Buffer& copy = copies_->by_name[name];
  if (!copy.has_data()) copy = weight->to(cpu_device()->default_mem_region());
  return copy;
}

Buffer WeightSet::as_object(const std::string& name, DType dtype) const {
  const Buffer* const weight = find(name);
  if (weight != nullptr && is_object(weight->shape().dtype())) {
    static_cast<void>(object_of(*weight, dtype));  // throws for another class
    return *weight;
  }
  const std::string key = fmt::format("{} as {}", name, tenon::name(dtype));
  {
    const std::scoped_lock lock(copies_->mutex);
    const auto found = copies_->by_name.find(key);
    if (found != copies_->by_name.end()) return found->second;
  }
  // The class's own code runs without the lock; of two threads that come first, one keeps its object.
  Buffer made;
  try {
    made = load_object(dtype, on_host(name).to_host());
  } catch (const Error& error) {
    throw Error(error.code(), name, error.message());
  }
  const std::scoped_lock lock(copies_->mutex);
  return copies_->by_name.emplace(key, std::move(made)).first->second;
}

std::shared_ptr<const Buffer> WeightSet::computed(const std::string& name) const {
  const std::scoped_lock lock(computed_->mutex);
  const auto found = computed_->by_name.find(name);
  return found == computed_->by_name.end() ? nullptr : found->second.lock();
}

void WeightSet::keep_computed(const std::string& name,
                              const std::shared_ptr<const Buffer>& array) const {
  const std::scoped_lock lock(computed_->mutex);
  computed_->by_name[name] = array;
}

}  // namespace tenon
