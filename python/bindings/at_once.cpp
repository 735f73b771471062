// Runs ops on arrays at once: those in CPU memory by an Eager, others by sessions of one op.

#include "at_once.hpp"

#include <tenon/eager.hpp>
#include <tenon/error.hpp>
#include <tenon/graph.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <source_location>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon::python {
namespace {

/// The backends of ops on arrays in CPU memory.
const std::vector<BackendPtr>& cpu_backends() {
  static const auto* const backends = new std::vector<BackendPtr>(default_backends());
  return *backends;
}

/// What runs ops on arrays in CPU memory. An Eager runs one call at a time, so that idle ones are kept.
class CpuOps {
 public:
  static CpuOps& instance() {
    static auto* const ops = new CpuOps();  // outlives every thread of Python's
    return *ops;
  }

  /// One that nobody else uses meanwhile.
  class Lease {
   public:
    Lease() : eager_(instance().take(generation_)) {}
    ~Lease() { instance().put(std::move(eager_), generation_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Eager& operator*() noexcept { return eager_; }
    Eager* operator->() noexcept { return &eager_; }

   private:
    std::uint64_t generation_ = 0;
    Eager eager_;
  };

  void forget() {
    std::vector<Eager> dropped;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    dropped.swap(idle_);
    ++generation_;
  }

 private:
  Eager take(std::uint64_t& generation) {
    const std::lock_guard lock(mutex_);
    generation = generation_;
    if (idle_.empty()) return Eager(nullptr, cpu_backends());
    Eager eager = std::move(idle_.back());
    idle_.pop_back();
    return eager;
  }

  void put(Eager eager, std::uint64_t generation) {
    const std::lock_guard lock(mutex_);
    if (generation == generation_) idle_.push_back(std::move(eager));
  }

  std::mutex mutex_;
  std::vector<Eager> idle_;
  std::uint64_t generation_ = 0;  // counts forget()
};

Buffer run_on_cpu(const OpInstance& op, const std::vector<Buffer>& inputs) {
  const std::vector<EagerArray> arrays(inputs.begin(), inputs.end());
  const std::vector<EagerInput> operands(arrays.begin(), arrays.end());
  return CpuOps::Lease()->run(op, operands).to_buffer();
}

/// Sessions of one op each, by op, attributes, types of the operands and device, which is not the CPU.
/// A session runs one call at a time, so that each entry holds those that are idle.
class SessionOps {
 public:
  static SessionOps& instance() {
    static auto* const ops = new SessionOps();
    return *ops;
  }

  Buffer run(const OpInstance& op, const std::vector<Buffer>& inputs, Device& device) {
    const std::string key = key_of(op, inputs, device);
    std::optional<Session> session = take(key);
    if (!session) session = made(op, inputs, device);
    std::vector<Buffer> outputs = session->forward(inputs);
    put(key, std::move(*session));
    return std::move(outputs.front());
  }

 private:
  static constexpr std::size_t limit = 1024;  // entries; all are dropped beyond it

  static std::string key_of(const OpInstance& op, const std::vector<Buffer>& inputs,
                            const Device& device) {
    std::string key;
    const auto append = [&key](const auto& value) {
      const std::size_t end = key.size();
      key.resize(end + sizeof(value));
      std::memcpy(key.data() + end, &value, sizeof(value));
    };
    append(op.def());
    append(&device);
    for (const Buffer& input : inputs) {
      append(input.shape().dtype());
      append(input.shape().rank());
      for (const std::int64_t dim : input.shape().dims()) append(dim);
    }
    key.append(static_cast<const char*>(op.attributes()), op.def()->attribute_bytes);
    return key;
  }

  std::optional<Session> take(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.find(key);
    if (found == idle_.end() || found->second.empty()) return std::nullopt;
    std::optional<Session> session(std::move(found->second.back()));
    found->second.pop_back();
    return session;
  }

  void put(const std::string& key, Session session) {
    std::unordered_map<std::string, std::vector<Session>> dropped;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (idle_.size() >= limit) dropped.swap(idle_);
    idle_[key].push_back(std::move(session));
  }

  static Session made(const OpInstance& op, const std::vector<Buffer>& inputs, Device& device) {
    Graph graph;
    const Graph::Recording recording(graph);
    std::vector<Tensor> operands;
    for (const Buffer& input : inputs) {
      operands.push_back(graph.input("", input.shape().without_tags()));
    }
    const Tensor result =
        record(*op.def(), op.attributes(), operands, std::source_location::current());
    SessionOptions options;
    options.backends = device_backends(device.shared_from_this());
    for (const BackendPtr& backend : cpu_backends()) options.backends.push_back(backend);
    options.results_on_device = true;
    return Session(graph.program(std::span<const Tensor>(&result, 1)), std::move(options));
  }

  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<Session>> idle_;
};

PyTypeObject* array_type() {
  static auto* const type = reinterpret_cast<PyTypeObject*>(nb::type<Buffer>().ptr());
  return type;
}

MemRegion& cpu_memory() {
  static MemRegion& region = cpu_device()->default_mem_region();
  return region;
}

const Shape& scalar(DType dtype) {
  static const auto* const scalars = [] {
    auto* const made = new std::array<Shape, dtype_count>();
    for (std::size_t i = 0; i < made->size(); ++i) {
      if (const auto one = static_cast<DType>(i); !is_block(one)) (*made)[i] = Shape({}, one);
    }
    return made;
  }();
  return (*scalars)[static_cast<std::size_t>(dtype)];
}

/// Operands as addresses, where those are complete arrays in CPU memory, and numbers beside them.
class PlainOperands {
 public:
  /// Whether they are such operands.
  bool read(const OpDef& def, std::span<PyObject* const> objects) {
    if (objects.size() > max_count) return false;
    std::optional<DType> type;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      PyObject* const object = objects[i];
      if (PyFloat_CheckExact(object) || PyLong_CheckExact(object)) continue;
      if (Py_TYPE(object) != array_type() || !nb::inst_ready(object)) return false;
      const Buffer& array = *nb::inst_ptr<Buffer>(object);
      if (!array.is_on(cpu_memory()) || !array.is_ready()) return false;
      if (!type && i >= conditions(def)) type = array.shape().dtype();
    }
    if (!objects.empty() && (!type || is_block(*type))) return false;
    for (PyObject* const object : objects) {
      if (Py_TYPE(object) == array_type()) {
        add(*nb::inst_ptr<Buffer>(object));
      } else if (!add_number(object, *type)) {
        return false;
      }
    }
    return true;
  }

  std::span<const Shape* const> types() const noexcept { return {types_.data(), count_}; }
  std::span<std::byte* const> addresses() const noexcept { return {addresses_.data(), count_}; }
  /// Of a view; null where the first operand is a number.
  const Buffer* first() const noexcept { return arrays_[0]; }
  /// The arrays, for when another thread may give one of them up.
  std::vector<Buffer> arrays() const {
    std::vector<Buffer> handles;
    for (std::size_t i = 0; i < count_; ++i) {
      if (arrays_[i] != nullptr) handles.push_back(*arrays_[i]);
    }
    return handles;
  }

 private:
  static constexpr std::size_t max_count = 4;

  void add(const Buffer& array) {
    array.wait();  // it is complete, but it may have failed
    arrays_[count_] = &array;
    types_[count_] = &array.shape();
    addresses_[count_++] = array.data().cptr();
  }

  bool add_number(PyObject* number, DType dtype) {
    std::byte* const place = numbers_[count_].data();
    types_[count_] = &scalar(dtype);
    addresses_[count_++] = place;
    return store_number(number, dtype, place);
  }

  std::size_t count_ = 0;
  std::array<const Buffer*, max_count> arrays_{};
  std::array<const Shape*, max_count> types_{};
  std::array<std::byte*, max_count> addresses_{};
  alignas(16) std::array<std::array<std::byte, 16>, max_count> numbers_;
};

nb::object array_object(Buffer&& array) {
  nb::object made = nb::inst_alloc(reinterpret_cast<PyObject*>(array_type()));
  new (nb::inst_ptr<Buffer>(made)) Buffer(std::move(array));
  nb::inst_mark_ready(made);
  return made;
}

/// Shares the memory of an array where the view is dense; nothing otherwise.
nb::object view_of(const Buffer* array, const EagerKernel& kernel) {
  if (array == nullptr || !is_contiguous(kernel.output, kernel.view->strides) ||
      kernel.output.elements() == 0) {
    return {};
  }
  return array_object(
      Buffer(kernel.output, array->chunk(),
             array->offset_bytes() + static_cast<std::uint64_t>(kernel.view->offset_bytes)));
}

}  // namespace

nb::object run_known(const OpInstance& op, std::span<PyObject* const> operands) {
  PlainOperands given;
  if (!given.read(*op.def(), operands)) return {};
  CpuOps::Lease eager;
  const EagerKernel* const kernel = eager->find(op, given.types());
  if (kernel == nullptr) return {};
  if (kernel->view) return view_of(given.first(), *kernel);
  nb::object result = array_object(Buffer::allocate(kernel->output, cpu_memory()));
  std::byte* const elements = nb::inst_ptr<Buffer>(result)->data().cptr();
  if (kernel->is_brief) {
    eager->run(*kernel, given.addresses(), elements);
  } else {
    const std::vector<Buffer> held = given.arrays();
    const nb::gil_scoped_release no_gil;
    eager->run(*kernel, given.addresses(), elements);
  }
  return result;
}

void forget_compiled_ops() { CpuOps::instance().forget(); }

/// The op's result in the memory of the first operand that the CPU cannot address, or in its own.
Buffer run_at_once(const OpInstance& op, std::vector<Buffer> inputs) {
  for (const Buffer& input : inputs) {
    if (input.has_data() && !input.region().is_host()) {
      return SessionOps::instance().run(op, inputs, input.region().device());
    }
  }
  return run_on_cpu(op, inputs);
}

}  // namespace tenon::python
