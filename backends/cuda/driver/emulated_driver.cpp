#include "driver/driver.hpp"
#include "driver/owner_process.hpp"
#include "emulation/block_runner.hpp"
#include "emulation/emulated_kernels.hpp"
#include "emulation/emulated_routines.hpp"
#include "emulation/loaded_kernel.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tenon::cuda {
namespace {

constexpr std::uint64_t alignment = 256;

/// Below 2^64 - alignment.
std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

/// Memory that ends, up to its alignment, at a page nobody may access, and begins behind one.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::uint64_t bytes) {
    const std::uint64_t page = page_bytes();
    const std::uint64_t used = rounded(bytes);
    const std::uint64_t pages = (used + page - 1) / page * page;
    mapped_ = pages + 2 * page;
    void* const begin = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) throw_no_memory();
    begin_ = static_cast<std::byte*>(begin);
    if (mprotect(begin_ + page, pages, PROT_READ | PROT_WRITE) != 0) {
      munmap(begin_, mapped_);
      throw_no_memory();
    }
    data_ = begin_ + page + pages - used;
    bytes_ = used;
  }
  ~GuardedMemory() {
    if (begin_ != nullptr) munmap(begin_, mapped_);
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)),
        data_(other.data_),
        mapped_(other.mapped_),
        bytes_(other.bytes_) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  [[noreturn]] static void throw_no_memory() {
    throw Error(Errc::out_of_device_memory, "cuda:emulated", "the CPU has no memory for it");
  }
  std::byte* begin_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t mapped_ = 0, bytes_ = 0;
};

/// Streams keep their work until somebody waits for it: a caller that forgets to wait reads what
/// was there before, every time.
class EmulatedDriver final : public Driver {
 public:
  explicit EmulatedDriver(EmulationOptions options)
      : capacity_(options.memory_bytes),
        faults_(options.faults),
        compiler_(std::move(options.compiler)) {
    facts_.name = "emulated CUDA device";
    facts_.protocol = "cuda-emulation";
    facts_.memory_bytes = capacity_;
    facts_.is_emulated = true;
    facts_.params = {{"memory", std::to_string(capacity_)}, {"runs_on", "the CPU, one thread"}};
  }

  const DeviceFacts& facts() const noexcept override { return facts_; }

  Address allocate(std::uint64_t bytes) override {
    const std::scoped_lock lock(mutex_);
    require_room("an allocation");
    const std::uint64_t left = capacity_ - used_;
    if (bytes > left || rounded(bytes) > left) {
      throw Error(
          Errc::out_of_device_memory, "cuda:emulated",
          fmt::format("no room for {} bytes: {} of {} are in use", bytes, used_, capacity_));
    }
    GuardedMemory memory(bytes);
    const Address address =
        reinterpret_cast<std::uintptr_t>(memory.data()) + emulation::address_offset;
    used_ += memory.bytes();
    memory_.emplace(address, std::move(memory));
    return address;
  }
  void free(Address address) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto found = memory_.find(address);
    if (found == memory_.end()) return;
    used_ -= found->second.bytes();
    memory_.erase(found);
  }
  std::uint64_t free_bytes() const override {
    const std::scoped_lock lock(mutex_);
    return capacity_ - used_;
  }

  void* allocate_pinned(std::uint64_t bytes) override {
    const std::scoped_lock lock(mutex_);
    require_working();
    GuardedMemory memory(bytes);
    void* const begin = memory.data();
    pinned_.emplace(begin, std::move(memory));
    return begin;
  }
  void free_pinned(void* memory) noexcept override {
    const std::scoped_lock lock(mutex_);
    pinned_.erase(memory);
  }

  StreamId create_stream() override {
    const std::scoped_lock lock(mutex_);
    require_room("a stream");
    const StreamId stream{++last_id_};
    streams_[stream];
    return stream;
  }
  void destroy(StreamId stream) noexcept override {
    const std::scoped_lock lock(mutex_);
    streams_.erase(stream);
  }
  EventId create_event() override {
    const std::scoped_lock lock(mutex_);
    require_room("an event");
    const EventId event{++last_id_};
    events_[event] = {};
    return event;
  }
  void destroy(EventId event) noexcept override {
    const std::scoped_lock lock(mutex_);
    events_.erase(event);
  }

  void write(StreamId stream, Address to, const void* from, std::uint64_t bytes) override {
    submit(stream, [this, to, from, bytes] { std::memcpy(bytes_at(to, bytes), from, bytes); });
  }
  void read(StreamId stream, void* to, Address from, std::uint64_t bytes) override {
    submit(stream, [this, to, from, bytes] { std::memcpy(to, bytes_at(from, bytes), bytes); });
  }
  void copy(StreamId stream, Address to, Address from, std::uint64_t bytes) override {
    submit(stream, [this, to, from, bytes] {
      std::memmove(bytes_at(to, bytes), bytes_at(from, bytes), bytes);
    });
  }
  void fill(StreamId stream, Address to, std::uint8_t value, std::uint64_t bytes) override {
    submit(stream, [this, to, value, bytes] { std::memset(bytes_at(to, bytes), value, bytes); });
  }
  void copy_from_peer(StreamId stream, Address to, Driver& peer, Address from,
                      std::uint64_t bytes) override {
    auto& other = static_cast<EmulatedDriver&>(peer);
    const std::byte* const source = other.locked_bytes_at(from, bytes);
    submit(stream, [this, to, source, bytes] { std::memcpy(bytes_at(to, bytes), source, bytes); });
  }
  bool is_peer(const Driver& other) const noexcept override {
    return dynamic_cast<const EmulatedDriver*>(&other) != nullptr;
  }

  std::string about(Routine routine) override {
    return fmt::format("the reference's {}", name_of(routine));
  }
  std::optional<std::string> refuses(const GemmCall& /*call*/) override { return std::nullopt; }
  std::optional<std::string> refuses(const ConvolutionCall& /*call*/) override {
    return std::nullopt;
  }
  std::uint64_t workspace_bytes() const noexcept override { return 4 * alignment; }

  const FoundCompiler& kernel_compiler() override { return compiler_; }
  std::shared_ptr<const GeneratedKernel> load(std::span<const std::byte> image,
                                              std::size_t args_bytes) override {
    return emulation::load_kernel(image, args_bytes);
  }

  void launch(StreamId stream, const Work& work) override {
    submit(stream, [this, kept = KeptWork(work)] { run(kept); });
  }

  GraphId create_graph(std::span<const Work> work, bool /*overlaps*/) override {
    const std::scoped_lock lock(mutex_);
    require_room("a graph");
    if (work.empty()) fail("create_graph", "a graph without nodes");
    const GraphId id{++last_id_};
    graphs_[id].nodes.assign(work.begin(), work.end());
    return id;
  }
  void update(GraphId graph, std::size_t node, const Work& work) override {
    const std::scoped_lock lock(mutex_);
    require_room("an update");
    std::vector<KeptWork>& nodes = graph_of(graph).nodes;
    if (node >= nodes.size()) {
      fail("update", fmt::format("node {} of a graph of {}", node, nodes.size()));
    }
    const Work& before = nodes[node].work;
    if (before.kernel != work.kernel || before.routine != work.routine ||
        before.generated != work.generated) {
      fail("update", fmt::format("node {} is {}, not {}", node, name_of(before), name_of(work)));
    }
    nodes[node] = KeptWork(work);
  }
  void launch(StreamId stream, GraphId graph) override {
    std::vector<KeptWork> nodes;
    std::shared_ptr<std::int64_t> token;
    {
      const std::scoped_lock lock(mutex_);
      require_working();
      nodes = graph_of(graph).nodes;
      token = graph_of(graph).launches;
    }
    submit(stream, [this, nodes = std::move(nodes), token = std::move(token)] {
      for (const KeptWork& node : nodes) run(node);
    });
  }
  void destroy(GraphId graph) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto found = graphs_.find(graph);
    if (found != graphs_.end() && found->second.launches.use_count() > 1 && !broken_) {
      broken_ = Error(Errc::device_error, "cuda:emulated",
                      "a graph was destroyed before its launches had ended");
    }
    graphs_.erase(graph);
  }

  void record(EventId event, StreamId stream) override {
    const std::scoped_lock lock(mutex_);
    require_working();
    events_.at(event) = {stream, streams_.at(stream).submitted};
  }
  void wait(StreamId stream, EventId event) override {
    submit(stream, [this, mark = mark_of(event)] { run_until(mark); });
  }
  bool has_happened(EventId event) override {
    synchronize(event);
    return true;
  }
  void synchronize(EventId event) override {
    const std::scoped_lock lock(mutex_);
    require_working();
    run_until(events_.at(event));
  }
  void synchronize(StreamId stream) override {
    const std::scoped_lock lock(mutex_);
    require_working();
    run_until({stream, streams_.at(stream).submitted});
  }
  void synchronize() override {
    const std::scoped_lock lock(mutex_);
    require_working();
    for (const auto& [stream, queue] : streams_) run_until({stream, queue.submitted});
  }

 private:
  /// Work with its own arguments.
  struct KeptWork {
    KeptWork(const Work& given)  // NOLINT(google-explicit-constructor)
        : work(given),
          args(static_cast<const std::byte*>(given.args),
               static_cast<const std::byte*>(given.args) + args_bytes(given)) {}
    Work work;  ///< but for its arguments
    std::vector<std::byte> args;
  };
  struct Graph {
    std::vector<KeptWork> nodes;
    /// Held by every launch that has not ended.
    std::shared_ptr<std::int64_t> launches = std::make_shared<std::int64_t>(0);
  };

  void run(const KeptWork& kept) {
    const Work& work = kept.work;
    if (faults_.failing_launch > 0 && --faults_.failing_launch == 0) {
      throw Error(Errc::device_error, name_of(work), "an injected fault");
    }
    if (work.generated != nullptr) {
      emulation::run_kernel(*work.generated, work.grid, kept.args.data());
    } else if (work.routine != Routine::none) {
      emulation::run_routine(work.routine, kept.args.data());
    } else {
      emulation::run_kernel(work.kernel, work.grid, kept.args.data());
    }
  }

  Graph& graph_of(GraphId id) {
    const auto found = graphs_.find(id);
    if (found == graphs_.end()) fail("graph", "it does not exist, or not any more");
    return found->second;
  }
  /// Misuse, under the lock: the device does not work any more.
  [[noreturn]] void fail(const char* what, const std::string& why) {
    broken_ = Error(Errc::device_error, "cuda:emulated", fmt::format("{}: {}", what, why));
    throw *broken_;
  }

  /// A place in a stream's work.
  struct Mark {
    StreamId stream{};
    std::uint64_t count = 0;
  };
  struct Queue {
    std::deque<std::function<void()>> work;
    std::uint64_t submitted = 0, done = 0;
  };

  Mark mark_of(EventId event) {
    const std::scoped_lock lock(mutex_);
    return events_.at(event);
  }

  void submit(StreamId stream, std::function<void()> work) {
    const std::scoped_lock lock(mutex_);
    require_room("a copy or a launch");
    Queue& queue = streams_.at(stream);
    queue.work.push_back(std::move(work));
    ++queue.submitted;
  }

  /// Under the lock.
  void run_until(const Mark& mark) {
    const auto found = streams_.find(mark.stream);
    if (found == streams_.end()) return;
    Queue& queue = found->second;
    while (queue.done < mark.count && !queue.work.empty()) {
      const std::function<void()> work = std::move(queue.work.front());
      queue.work.pop_front();
      ++queue.done;
      try {
        work();
      } catch (const Error& error) {
        broken_ = Error(Errc::device_error, "cuda:emulated",
                        fmt::format("{}: {}", error.where(), error.message()));
        throw *broken_;
      }
    }
  }

  void require_working() const {
    process_.check("cuda:emulated");
    if (broken_) throw *broken_;
  }
  void require_room(const char* what) {
    require_working();
    if (faults_.failing_allocation == 0 || --faults_.failing_allocation > 0) return;
    throw Error(Errc::out_of_device_memory, "cuda:emulated", fmt::format("{}: no room", what));
  }

  std::byte* locked_bytes_at(Address address, std::uint64_t bytes) const {
    const std::scoped_lock lock(mutex_);
    require_working();
    return bytes_at(address, bytes);
  }

  std::byte* bytes_at(Address address, std::uint64_t bytes) const {
    auto found = memory_.upper_bound(address);
    if (found != memory_.begin()) {
      const auto& [begin, memory] = *--found;
      const std::uint64_t offset = address - begin;
      if (offset <= memory.bytes() && bytes <= memory.bytes() - offset)
        return memory.data() + offset;
    }
    throw Error(Errc::device_error, "copy",
                fmt::format("{} bytes at {:#x} are not memory of the device", bytes, address));
  }

  DeviceFacts facts_;
  mutable std::mutex mutex_;
  std::uint64_t capacity_, used_ = 0;
  EmulatedFaults faults_;
  FoundCompiler compiler_;
  std::map<Address, GuardedMemory> memory_;
  std::map<void*, GuardedMemory> pinned_;
  std::map<StreamId, Queue> streams_;
  std::map<EventId, Mark> events_;
  std::map<GraphId, Graph> graphs_;
  OwnerProcess process_;
  std::uint64_t last_id_ = 0;
  std::optional<Error> broken_;
};

}  // namespace

DriverPtr open_emulated_driver(EmulationOptions options) {
  return std::make_shared<EmulatedDriver>(std::move(options));
}

}  // namespace tenon::cuda
