#include "array/object_slot.hpp"
#include "base/immortal.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/object.hpp>
#include <tenon/op.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace tenon {
namespace {

constexpr int first_number = 128, max_classes = 128;

struct Registered {
  explicit Registered(ObjectClass given) : object_class(std::move(given)) {
    facts = {object_class.name, DTypeKind::object, 1, sizeof(void*)};
  }
  ObjectClass object_class;
  DTypeFacts facts;
};

/// Entries are written once, and the number of them afterwards: readers take no lock, and need no
/// memory.
struct Registry {
  std::atomic<int> count{0};
  std::array<const Registered*, max_classes> classes{};
};
constinit Registry registry;

/// Of those who register.
ForkLockedMutex& registry_mutex() {
  return process_wide([] { return ForkLockedMutex(); });
}

const Registered* find(DType dtype) noexcept {
  const int index = static_cast<int>(dtype) - first_number;
  if (index < 0) return nullptr;  // most types are none
  if (index >= registry.count.load(std::memory_order_acquire)) return nullptr;
  return registry.classes[static_cast<std::size_t>(index)];
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

void check_name(const std::string& name) {
  constexpr std::array<std::string_view, 6> words{"False", "Index",  "None",
                                                  "Scope", "Tensor", "True"};
  if (std::ranges::find(words, name) != words.end()) {
    throw Error(Errc::duplicate_name, name, "is a word of the language and names no class");
  }
  const bool is_name =
      !name.empty() && name.size() <= 255 && name[0] >= 'A' && name[0] <= 'Z' &&
      std::ranges::all_of(name, [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  if (is_name) return;
  throw Error(
      Errc::bad_argument, "register_object",
      fmt::format("'{}' is no name of a class: a capital letter, then letters, digits and _",
                  name));
}

[[noreturn]] void throw_class(std::string_view found, DType wanted) {
  throw Error(Errc::bad_type, "object",
              is_object(wanted) ? fmt::format("{} is no object of class {}", found, name(wanted))
                                : fmt::format("{} is no object", found));
}

objects::Slot& slot_of(const Buffer& buffer) {
  return *reinterpret_cast<objects::Slot*>(buffer.data().cptr());
}

std::string bytes_text(const HostBuffer& bytes) {
  const std::span<const std::uint8_t> values = bytes.values<std::uint8_t>();
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

}  // namespace

namespace detail {

void throw_unknown_class() {
  throw Error(Errc::call_order, "object", "register_object<T>() comes before objects of a class T");
}

void check_objects(std::string_view op, const OpTraits& traits, std::span<const Shape> inputs,
                   const Shape* output) {
  for (const Shape& input : inputs) {
    if (!is_object(input.dtype())) continue;
    if (!traits.takes_objects) {
      fail(Errc::unsupported_dtype, op, fmt::format("takes no {}", to_string(input)));
    }
    if (input.rank() > 0) {
      fail(Errc::bad_shape, op, fmt::format("{} is an array of objects", to_string(input)));
    }
    const bool is_updated = std::cmp_equal(&input - inputs.data(), traits.updates_input);
    if (is_updated && !is_linear_object(input.dtype())) {
      fail(
          Errc::unsupported_dtype, op,
          fmt::format("updates a {}, whose objects are shared and never change", to_string(input)));
    }
  }
  if (output == nullptr) return;
  const auto updated = static_cast<std::size_t>(traits.updates_input);
  if (!traits.takes_objects || traits.updates_input < 0 || updated >= inputs.size() ||
      !(inputs[updated].without_tags() == output->without_tags())) {
    fail(Errc::unsupported_dtype, op,
         fmt::format("makes a {}: only an op that updates one returns it", to_string(*output)));
  }
}

}  // namespace detail

DType register_object_class(ObjectClass object_class) {
  std::atomic<int> number{-1};
  return detail::register_class(std::move(object_class), number);
}

DType detail::register_class(ObjectClass object_class, std::atomic<int>& number) {
  check_name(object_class.name);
  auto made = std::make_unique<const Registered>(std::move(object_class));
  const std::string& name = made->object_class.name;
  const std::scoped_lock lock(registry_mutex());
  const int count = registry.count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (registry.classes[static_cast<std::size_t>(i)]->object_class.name != name) continue;
    if (number.load() == first_number + i) return static_cast<DType>(number.load());
    throw Error(Errc::duplicate_name, name, "is the name of another class");
  }
  // A number of another copy of the core in the process, with which the loader shares it, is none here.
  if (number.load() >= 0) {
    if (const Registered* const known = find(static_cast<DType>(number.load()))) {
      throw Error(
          Errc::duplicate_name, name,
          fmt::format("this class is already registered as '{}'", known->object_class.name));
    }
  }
  if (count == max_classes) {
    throw Error(Errc::limit_exceeded, name, fmt::format("more than {} classes", max_classes));
  }
  registry.classes[static_cast<std::size_t>(count)] = made.release();
  registry.count.store(count + 1, std::memory_order_release);
  number.store(first_number + count);
  return static_cast<DType>(first_number + count);
}

const ObjectClass& object_class(DType dtype) {
  const Registered* const found = find(dtype);
  if (found == nullptr) {
    throw Error(Errc::bad_type, "object", fmt::format("{} is no class of objects", name(dtype)));
  }
  return found->object_class;
}

std::optional<DType> find_object_type(std::string_view name) noexcept {
  const int count = registry.count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (registry.classes[static_cast<std::size_t>(i)]->object_class.name == name) {
      return static_cast<DType>(first_number + i);
    }
  }
  return std::nullopt;
}

DType object_type(std::string_view name) {
  if (const auto found = find_object_type(name)) return *found;
  throw Error(Errc::bad_type, "object", fmt::format("no class '{}' is registered", name));
}

std::vector<DType> object_types() {
  std::vector<DType> types;
  const int count = registry.count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) types.push_back(static_cast<DType>(first_number + i));
  return types;
}

bool is_linear_object(DType dtype) noexcept {
  const Registered* const found = find(dtype);
  return found != nullptr && found->object_class.is_linear;
}

Buffer object_buffer(DType dtype, std::shared_ptr<void> object) {
  static_cast<void>(object_class(dtype));
  if (object == nullptr) {
    throw Error(Errc::bad_argument, "object_buffer", fmt::format("null for {}", name(dtype)));
  }
  Buffer buffer =
      Buffer::allocate(Shape(std::span<const Axis>(), dtype), cpu_device()->default_mem_region());
  objects::Slot& slot = slot_of(buffer);
  slot.owner = std::make_shared<objects::Box>(std::move(object));
  slot.box = slot.owner.get();
  return buffer;
}

std::shared_ptr<void> object_of(const Buffer& buffer, DType dtype) {
  if (buffer.shape().dtype() != dtype || !is_object(dtype))
    throw_class(to_string(buffer.shape()), dtype);
  static_cast<void>(buffer.data());
  buffer.wait();
  const objects::Slot& slot = slot_of(buffer);
  if (slot.owner == nullptr) {
    throw Error(Errc::call_order, "object", fmt::format("a {} without an object", name(dtype)));
  }
  return slot.owner->object;
}

Buffer copied_object(const Buffer& buffer) {
  const DType dtype = buffer.shape().dtype();
  const ObjectClass& type = object_class(dtype);
  const std::shared_ptr<void> object = object_of(buffer, dtype);
  if (!type.copy) {
    throw Error(Errc::unsupported, type.name, "objects of this class cannot be copied: move it in");
  }
  return object_buffer(dtype, type.copy(object.get()));
}

HostBuffer save_object(const Buffer& buffer) {
  const DType dtype = buffer.shape().dtype();
  const ObjectClass& type = object_class(dtype);
  const std::shared_ptr<void> object = object_of(buffer, dtype);
  if (!type.save) {
    throw Error(Errc::unsupported, type.name, "objects of this class cannot be saved");
  }
  const std::string bytes = type.save(object.get());
  HostBuffer saved =
      HostBuffer::uninitialized(Shape({static_cast<std::int64_t>(bytes.size())}, u8));
  if (!bytes.empty()) {
    std::memcpy(saved.mutable_values<std::uint8_t>().data(), bytes.data(), bytes.size());
  }
  return saved;
}

Buffer load_object(DType dtype, const HostBuffer& bytes) {
  const ObjectClass& type = object_class(dtype);
  if (bytes.shape().rank() != 1 || bytes.shape().dtype() != u8) {
    throw Error(Errc::bad_type, type.name,
                fmt::format("an object is saved as u8[n], not as {}", to_string(bytes.shape())));
  }
  if (!type.load) {
    throw Error(Errc::unsupported, type.name, "objects of this class cannot be loaded");
  }
  return object_buffer(dtype,
                       type.load(bytes_text(bytes.is_contiguous() ? bytes : bytes.contiguous())));
}

void* object_at(const HostView& operand, DType dtype) {
  if (operand.shape.dtype() != dtype || !is_object(dtype))
    throw_class(to_string(operand.shape), dtype);
  const objects::Box* const box = *operand.as<objects::Box*>();
  if (box == nullptr) {
    throw Error(Errc::call_order, "object", fmt::format("a {} without an object", name(dtype)));
  }
  return box->object.get();
}

void* update_object(const HostView& operand, const HostView& output, DType dtype) {
  void* const object = object_at(operand, dtype);
  *output.as<objects::Box*>() = *operand.as<objects::Box*>();
  return object;
}

namespace objects {

const DTypeFacts& facts_of(DType dtype) noexcept {
  static constexpr DTypeFacts foreign{"object", DTypeKind::object, 1, sizeof(void*)};
  const Registered* const found = find(dtype);
  return found != nullptr ? found->facts : foreign;
}

void FreeSlot::operator()(const MemPtr& begin) const noexcept {
  delete reinterpret_cast<Slot*>(begin.cptr());
}

MemChunk new_slot(DType dtype, MemRegion& region) {
  if (!region.is_host()) {
    throw Error(Errc::unsupported_dtype, std::string(name(dtype)),
                fmt::format("objects lie in CPU memory, not in {}", region.name()));
  }
  auto slot = std::make_unique<Slot>();
  MemChunk chunk = region.malloc_at(MemPtr(slot.get()), sizeof(Box*), FreeSlot());
  static_cast<void>(slot.release());
  return chunk;
}

void own(std::span<const Buffer> first, std::span<const Buffer> second) noexcept {
  const auto each = [&](const auto& visit) {
    for (const std::span<const Buffer> buffers : {first, second}) {
      for (const Buffer& buffer : buffers) {
        if (is_object(buffer.shape().dtype()) && buffer.has_data()) visit(slot_of(buffer));
      }
    }
  };
  // All are taken before one is let go: a loop may have exchanged them.
  each([](Slot& slot) {
    if (slot.box != nullptr) slot.next = slot.box->shared_from_this();
  });
  each([](Slot& slot) {
    if (slot.next != nullptr) slot.owner = std::move(slot.next);
  });
}

Buffer share(const HostView& element) {
  Buffer buffer = Buffer::allocate(element.shape, cpu_device()->default_mem_region());
  Slot& slot = slot_of(buffer);
  slot.box = *element.as<Box*>();
  if (slot.box != nullptr) slot.owner = slot.box->shared_from_this();
  return buffer;
}

void assign(const Buffer& from, const Buffer& to, bool updated) {
  const DType dtype = from.shape().dtype();
  static_cast<void>(object_of(from, dtype));  // waits, and throws where there is none
  Slot& slot = slot_of(to);
  slot.owner =
      updated && is_linear_object(dtype) ? slot_of(copied_object(from)).owner : slot_of(from).owner;
  slot.box = slot.owner.get();
}

}  // namespace objects
}  // namespace tenon
