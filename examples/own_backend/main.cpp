// A device of one's own that is no NPU of Tenon's, and the backend that runs ops on it: memory that the CPU cannot
// address, and a unit for linear layers alone. docs/own-backends.md explains it.
#include <tenon/range_allocator.hpp>
#include <tenon/tenon.hpp>
#include <tenon/testkit.hpp>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace tenon;

/// The card's memory: the host reaches it by read(), write() and copy(), where a real one has its DMA. What lies outside of
/// it is refused by cell().
class CardMemory final : public MemRegion {
 public:
  CardMemory(std::uint64_t base, std::uint64_t size)
      : MemRegion("card"), cells_(size), ranges_(base, size, {"card", /*redzone=*/0}) {}

  bool is_host() const noexcept override { return false; }
  using MemRegion::copy;
  void read(void* to, const MemPtr& from, std::uint64_t size) const override {
    std::memcpy(to, cell(from, size), size);
  }
  void write(const MemPtr& to, const void* from, std::uint64_t size) override {
    std::memcpy(cell(to, size), from, size);
  }
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    std::memmove(cell(to, size), cell(from, size), size);
  }
  Usage usage() const override { return ranges_.usage(); }

  /// The first of `size` bytes.
  std::byte* cell(const MemPtr& at, std::uint64_t size) const {
    const std::uint64_t offset = at.addr() - ranges_.base();  // enormous for addresses before it
    if (offset > cells_.size() || size > cells_.size() - offset) {
      throw Error(Errc::out_of_range, name(), to_string(at) + " is outside of it");
    }
    return cells_.data() + offset;
  }

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    const std::optional<std::uint64_t> begin = ranges_.try_allocate(size, alignment);
    if (!begin) throw_no_room(size, alignment);
    return MemPtr(*begin);
  }
  void release(const MemPtr& begin, std::uint64_t size) override {
    ranges_.release(begin.addr(), size);
  }

 private:
  mutable std::vector<std::byte> cells_;
  RangeAllocator ranges_;
};

class Card final : public Device {
 public:
  explicit Card(const DeviceUrl& url) : Device(url.text) {
    url.check_keys({});
    declare(std::make_unique<CardMemory>(0x4000'0000, 16 << 20), /*is_default=*/true);
    init();
  }
  ~Card() override { deinit(); }
  std::string protocol() const override { return "example"; }
  std::map<std::string, std::string> version() const override { return {{"card", "1"}}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override { check_reset_level(level); }

  /// What silicon would do: y [rows, out] = x [rows, in] w^T + b; b may be null.
  void linear(const MemPtr& x, const MemPtr& w, const MemPtr& b, const MemPtr& y, std::int64_t rows,
              std::int64_t in, std::int64_t out) const {
    const auto& memory = static_cast<const CardMemory&>(default_mem_region());
    const auto floats = [&](const MemPtr& from, std::int64_t count) {
      const std::uint64_t size = static_cast<std::uint64_t>(count) * sizeof(float);
      return reinterpret_cast<float*>(memory.cell(from, size));
    };
    const float* const xs = floats(x, rows * in);
    const float* const ws = floats(w, out * in);
    const float* const bs = b.is_null() ? nullptr : floats(b, out);
    float* const ys = floats(y, rows * out);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < out; ++column) {
        float total = bs == nullptr ? 0 : bs[column];
        for (std::int64_t k = 0; k < in; ++k) total += xs[row * in + k] * ws[column * in + k];
        ys[row * out + column] = total;
      }
    }
  }
};

/// Consecutive linear layers: as compiled, and with their weights on the card.
class CardSteps final : public Partition, public BoundPartition {
 public:
  CardSteps(std::shared_ptr<const Card> card, std::span<const Step> steps)
      : card_(std::move(card)), steps_(steps) {}

  std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
    auto bound = std::make_unique<CardSteps>(card_, steps_);
    for (const Step& step : steps_) {
      for (const Operand& operand : step.inputs) {
        const std::uint32_t index = operand.place.index;
        if (operand.place.kind != Place::Kind::constant) continue;
        bound->weights_.emplace(index, constants.buffers[index].to(card_->default_mem_region()));
      }
    }
    return bound;
  }

  void run_on_device(DeviceFrame& frame) const override {
    const auto address = [&](const Operand& operand) {
      if (operand.place.kind != Place::Kind::constant) return frame.address(operand.place);
      // A slice of a weight begins within it.
      return weights_.at(operand.place.index).data() + operand.place.offset;
    };
    for (const Step& step : steps_) {
      if (frame.interrupt != nullptr) frame.interrupt->check("card");
      const Shape& w = step.inputs[1].shape;
      const std::int64_t rows = step.output.shape.elements() / w.dim(0);
      card_->linear(address(step.inputs[0]), address(step.inputs[1]),
                    step.op.as<Linear>()->has_bias ? address(step.inputs[2]) : MemPtr(),
                    address(step.output), rows, w.dim(1), w.dim(0));
    }
  }

 private:
  std::shared_ptr<const Card> card_;
  std::span<const Step> steps_;
  std::map<std::uint32_t, Buffer> weights_;  // by number of the constant
};

class CardBackend final : public Backend {
 public:
  explicit CardBackend(std::shared_ptr<const Card> card) : card_(std::move(card)) {}

  std::string_view name() const noexcept override { return "card"; }
  MemRegion& region() const override { return card_->default_mem_region(); }
  bool wants_unrolled() const noexcept override { return true; }  // no loops
  std::optional<std::string> refuses(const Step& step) const override {
    const Linear* const linear = step.kind == Step::Kind::op ? step.op.as<Linear>() : nullptr;
    if (linear == nullptr) return "the card has a unit for linear layers only";
    if (linear->has_residual) return "the unit adds no residual";
    for (const Operand& operand : step.inputs) {
      if (operand.shape.dtype() != f32) return "the unit computes in f32";
      if (!operand.is_contiguous()) return "an operand is strided";
    }
    if (step.output.shape.elements() == 0) return "nothing to compute";
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    return std::make_unique<CardSteps>(card_, steps);
  }

 private:
  std::shared_ptr<const Card> card_;
};

template <class T = Tensor>
struct Mlp {
  nn::Linear<T> up, down;
  TENON_FIELDS(up, down)
  Tensor forward(const Tensor& x) const { return argmax(down.forward(silu(up.forward(x)))); }
};

int main(int argc, char** argv) try {
  Device::register_scheme("card", [](const DeviceUrl& url) { return std::make_shared<Card>(url); });
  register_device_backend("card", [](const DevicePtr& device, const BackendOptions&) -> BackendPtr {
    return std::make_shared<CardBackend>(std::dynamic_pointer_cast<const Card>(device));
  });

  if (argc > 2) throw Error(Errc::bad_argument, argv[2], "is one argument too many");
  const std::string data = argc > 1 ? argv[1] : "examples/data";
  const auto file = io::open(data + "/digits_mlp.safetensors");
  const Mlp<> model{nn::Linear<>::init(file.view()["up"]), nn::Linear<>::init(file.view()["down"])};
  const DevicePtr device = Device::open("card:");
  auto run =
      compile<&Mlp<>::forward>(model, {Shape({360, 64}, f32)}, device, {.cpu_fallback = true})
          .bind(io::load(model, file, cpu_device()));

  const auto test = io::open(data + "/digits_test.safetensors");
  const HostBuffer images = test.at("images").data().reshape({360, 64});
  const HostBuffer labels = test.at("labels").data();
  const HostBuffer digits = run(images.to_device(device)).to_host();
  int right = 0;
  for (std::int64_t i = 0; i < 360; ++i) right += digits.at({i}) == labels.at({i}) ? 1 : 0;
  std::printf("%d of 360 handwritten digits recognised\n", right);
  for (const auto& part : run.report().parts) {
    std::printf("%s: %s\n", part.backend.c_str(), part.values.front().c_str());
  }

  // Everything that it does not refuse, tried.
  const auto check = testkit::check_backend(device_backends(device).front());
  for (const std::string& finding : check.findings) std::printf("%s\n", finding.c_str());
  const auto tried = check.ran.find("linear");
  std::printf("%d linear layers tried, %zu findings\n",
              tried == check.ran.end() ? 0 : static_cast<int>(tried->second),
              check.findings.size());
  return check.findings.empty() ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_status(error.code());
}
