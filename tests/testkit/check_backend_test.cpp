// A backend that computes what the reference does, in memory of its own, and the mistakes that
// check_backend() must find in it.
#include "support/fake_device.hpp"

#include <tenon/backends/null.hpp>
#include <tenon/ops/softmax.hpp>
#include <tenon/tenon.hpp>
#include <tenon/testkit.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

enum class Mistake {
  none,
  forgets_offset_of_constants,
  takes_strided_as_dense,
  forgets_attributes,
  keeps_first_weights,
  overwrites_inputs,
  counts_runs,
  keeps_memory,
  copies_forwards,
  wrong_code,
  foreign_exception,
  throws_in_refuses,
  nameless,
  wrong_numbers,  ///< of several ops, see change()
  ignores_interrupts,
  throws_a_number,
};

class CardMemory final : public FakeRegion {
 public:
  explicit CardMemory(Mistake mistake)
      : FakeRegion("card", 0x1'0000'0000, std::uint64_t{8} << 20, false), mistake_(mistake) {}

  using FakeRegion::copy;
  void copy(const MemPtr& to, const MemPtr& from, std::uint64_t size) override {
    if (mistake_ != Mistake::copies_forwards) return FakeRegion::copy(to, from, size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      FakeRegion::copy(to + at, from + at, 1);
    }
  }

 protected:
  MemPtr allocate(std::uint64_t size, std::uint64_t alignment) override {
    if (mistake_ == Mistake::wrong_code && size > std::uint64_t{8} << 20) {
      throw Error(Errc::out_of_memory, name(), "full");
    }
    return FakeRegion::allocate(size, alignment);
  }

 private:
  Mistake mistake_;
};

class Card final : public Device {
 public:
  explicit Card(Mistake mistake) : Device("card:") {
    declare(std::make_unique<CardMemory>(mistake), true);
    init();
  }
  ~Card() override { deinit(); }
  std::string protocol() const override { return "card"; }
  std::map<std::string, std::string> version() const override { return {}; }
  std::map<std::string, std::string> params() const override { return {}; }
  void reset(int level) override { check_reset_level(level); }
};

class CardBackend : public Backend {
 public:
  CardBackend(DevicePtr card, Mistake mistake) : card_(std::move(card)), mistake_(mistake) {}

  std::string_view name() const noexcept override {
    return mistake_ == Mistake::nameless ? "" : "card";
  }
  MemRegion& region() const override { return card_->default_mem_region(); }
  bool wants_unrolled() const noexcept override { return true; }
  std::optional<std::string> refuses(const Step& step) const override {
    if (mistake_ == Mistake::throws_in_refuses) throw std::runtime_error("no firmware");
    if (step.kind != Step::Kind::op) return "ops only";
    static constexpr std::string_view known[] = {"linear", "softmax", "add", "relu", "tanh", "mul"};
    if (std::ranges::find(known, step.op.def()->name) == std::end(known)) return "not built in";
    if (step.output.shape.dtype() != f32 || !step.output.is_contiguous()) return "dense f32 only";
    for (const Operand& operand : step.inputs) {
      if (operand.shape.dtype() != f32) return "f32 only";
    }
    return std::nullopt;
  }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    return std::make_unique<Steps>(*this, steps);
  }

 private:
  class Steps final : public Partition, public BoundPartition {
   public:
    Steps(const CardBackend& owner, std::span<const Step> steps) : owner_(owner), steps_(steps) {}

    std::unique_ptr<BoundPartition> bind(const BoundConstants& constants) const override {
      auto bound = std::make_unique<Steps>(owner_, steps_);
      for (const Step& step : steps_) {
        for (const Operand& operand : step.inputs) {
          if (operand.place.kind != Place::Kind::constant) continue;
          bound->constants_.insert_or_assign(operand.place.index,
                                             owner_.weight(constants.buffers[operand.place.index]));
        }
      }
      if (owner_.is(Mistake::keeps_memory)) owner_.region().malloc(64, /*auto_free=*/false);
      return bound;
    }

    void run_on_device(DeviceFrame& frame) const override {
      if (owner_.is(Mistake::foreign_exception)) throw std::runtime_error("vendor error 7");
      if (owner_.is(Mistake::throws_a_number)) throw 42;
      for (const Step& step : steps_) {
        if (frame.interrupt != nullptr && !owner_.is(Mistake::ignores_interrupts)) {
          frame.interrupt->check("card");
        }
        compute(frame, step);
      }
    }

   private:
    void compute(const DeviceFrame& frame, const Step& step) const {
      std::vector<HostBuffer> kept;
      std::vector<HostView> inputs;
      for (const Operand& operand : step.inputs) inputs.push_back(view(frame, operand, kept));
      HostBuffer output = HostBuffer::zeros(step.output.shape);
      OpInstance op = step.op;
      if (owner_.is(Mistake::forgets_attributes) && op.as<Softmax>() != nullptr) {
        op = OpInstance(Softmax{.axis = step.output.shape.rank() - 1});
      }
      op.def()->reference(op.attributes(), inputs, output.view());
      if (owner_.is(Mistake::counts_runs) && output.shape().elements() > 0) {
        output.mutable_values<float>()[0] += static_cast<float>(++owner_.runs_) / 1000;
      }
      change(step, inputs, output);
      write(frame, step.output, output);
      if (owner_.is(Mistake::wrong_numbers) && step.op.def()->name == "add" &&
          output.shape().elements() > 0) {
        owner_.region().write(frame.address(step.output.place) + output.shape().bytes(), "here", 4);
      }
      const Operand& first = step.inputs[0];
      if (owner_.is(Mistake::overwrites_inputs) && first.place.kind != Place::Kind::constant &&
          first.is_contiguous() && first.shape == step.output.shape) {
        write(frame, first, output);
      }
    }

    /// Sums without what is left of eights, softmax without its maximum, a relu of NaN that is 0.
    void change(const Step& step, const std::vector<HostView>& inputs, HostBuffer& output) const {
      if (!owner_.is(Mistake::wrong_numbers)) return;
      if (step.op.def()->name == "linear") {
        const std::int64_t length = inputs[0].shape[inputs[0].shape.rank() - 1];
        if (length % 8 == 0 || length < 8 || inputs[0].shape.elements() == 0) return;
        HostBuffer without = HostBuffer::zeros(inputs[0].shape);
        std::vector<HostView> changed = inputs;
        const auto head = [&](const HostView& whole) {
          HostView part = whole;
          part.shape = whole.shape.with_dim(whole.shape.rank() - 1, length / 8 * 8);
          return part;
        };
        copy_elements(head(inputs[0]), head(without.view()));
        changed[0] = without.view();
        step.op.def()->reference(step.op.attributes(), changed, output.view());
      }
      const bool overflows = step.op.as<Softmax>() != nullptr && has_large(inputs[0]);
      for (float& value : output.mutable_values<float>()) {
        if (step.op.def()->name == "relu" && std::isnan(value)) value = 0;
        if (overflows) value = std::numeric_limits<float>::quiet_NaN();
      }
    }

    static bool has_large(const HostView& array) {
      bool large = false;
      for_each_index(array.shape, [&](std::span<const std::int64_t> index) {
        large |= load_as_double(f32, array.at(index)) > 88.8;
      });
      return large;
    }

    void write(const DeviceFrame& frame, const Operand& to, const HostBuffer& array) const {
      const auto bytes = static_cast<std::uint64_t>(array.shape().bytes());
      if (bytes > 0) owner_.region().write(frame.address(to.place), array.bytes(), bytes);
    }

    HostView view(const DeviceFrame& frame, const Operand& operand,
                  std::vector<HostBuffer>& kept) const {
      const bool dense = owner_.is(Mistake::takes_strided_as_dense);
      const Strides strides = dense ? dense_strides(operand.shape) : operand.strides;
      if (operand.place.kind == Place::Kind::constant) {
        const bool forgets = owner_.is(Mistake::forgets_offset_of_constants);
        return HostView(
            constants_.at(operand.place.index).view().data + (forgets ? 0 : operand.place.offset),
            operand.shape, strides);
      }
      const ByteRange range = byte_range(operand);
      kept.push_back(HostBuffer::zeros(Shape({std::max<std::int64_t>(range.size(), 0)}, u8)));
      const std::int64_t before = operand.place.offset - range.begin;
      if (!range.is_empty()) {
        owner_.region().read(kept.back().view().data, frame.address(operand.place) - before,
                             static_cast<std::uint64_t>(range.size()));
      }
      return HostView(kept.back().view().data + (dense ? 0 : before), operand.shape, strides);
    }

    const CardBackend& owner_;
    std::span<const Step> steps_;
    std::map<std::uint32_t, HostBuffer> constants_;
  };

  bool is(Mistake mistake) const noexcept { return mistake_ == mistake; }

  HostBuffer weight(const Buffer& buffer) const {
    if (!is(Mistake::keeps_first_weights)) return buffer.to_host();
    const std::lock_guard lock(mutex_);
    return first_weights_.try_emplace(to_string(buffer.shape()), buffer.to_host()).first->second;
  }

  DevicePtr card_;
  Mistake mistake_;
  mutable std::atomic<int> runs_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, HostBuffer> first_weights_;
};

/// Leaves what is not dense to others.
class PickyBackend final : public CardBackend {
 public:
  PickyBackend() : CardBackend(std::make_shared<Card>(Mistake::none), Mistake::none) {}
  std::optional<std::string> refuses(const Step& step) const override {
    for (const Operand& operand : step.inputs) {
      if (!operand.is_contiguous()) return "strided";
      if (operand.place.kind == Place::Kind::constant) return "a constant";
      if (operand.shape.elements() == 0) return "empty";
    }
    return CardBackend::refuses(step);
  }
};

testkit::BackendCheck checked(Mistake mistake) {
  // Where a backend writes to what another fork reads, the forks are a race.
  const bool writes_elsewhere =
      mistake == Mistake::overwrites_inputs || mistake == Mistake::wrong_numbers;
  return testkit::check_backend(
      std::make_shared<CardBackend>(std::make_shared<Card>(mistake), mistake),
      {.trials_per_op = 6, .threads = !writes_elsewhere});
}

/// Whether a finding has these words.
bool has(const testkit::BackendCheck& check, std::string_view words) {
  return std::ranges::any_of(check.findings, [&](const std::string& finding) {
    return finding.find(words) != std::string::npos;
  });
}

TEST_CASE("check_backend: nothing is found in a backend that computes what the reference does") {
  const testkit::BackendCheck check = checked(Mistake::none);
  CHECK(check.findings == std::vector<std::string>{});
  CHECK(check.passed());
  CHECK(check.ran.size() == 6);
  CHECK(check.ran.at("softmax") > 2);
  CHECK(check.left.at("conv2d") == "not built in");
  CHECK_FALSE(check.left.contains("softmax"));
}

TEST_CASE("check_backend: mistakes are found, and said of what") {
  CHECK(has(checked(Mistake::forgets_offset_of_constants), "parts of larger constants"));
  CHECK(has(checked(Mistake::takes_strided_as_dense), "strided inputs"));
  CHECK(has(checked(Mistake::forgets_attributes), "softmax: softmax(axis="));
  CHECK(has(checked(Mistake::keeps_first_weights), "other weights"));
  CHECK(has(checked(Mistake::overwrites_inputs), "inputs that are used again later"));
  CHECK(has(checked(Mistake::counts_runs), "a second run gives other bytes"));
  CHECK(has(checked(Mistake::keeps_memory), "memory: "));
  CHECK(has(checked(Mistake::copies_forwards), "memory: copy() of 3000 bytes from 0 to 2000"));
  CHECK(has(checked(Mistake::wrong_code), "instead of OutOfDeviceMemory"));
  CHECK(has(checked(Mistake::foreign_exception), "threw: vendor error 7"));
  CHECK(has(checked(Mistake::throws_in_refuses), "threw: no firmware"));
  CHECK(has(checked(Mistake::nameless), "name(): is empty"));
  CHECK(has(checked(Mistake::ignores_interrupts), "though its interrupt is due"));
  CHECK(has(checked(Mistake::throws_a_number), "threw what is no std::exception"));
}

TEST_CASE("check_backend: wrong numbers of some sizes and of some values are found") {
  const testkit::BackendCheck check = checked(Mistake::wrong_numbers);
  CHECK(has(check, "of f32[3, 33], f32[5, 33], dense inputs: "));
  CHECK(has(check, "dense inputs: it writes 4 bytes behind result 0, which has 48"));
  CHECK(has(check, "softmax(axis=0) of f32[3, 4], numbers up to 200: "));
  CHECK(has(check, "relu() of f32[3, 4], NaN, infinities and -0: "));
}

TEST_CASE("check_backend: what a backend says of special values, and what is tried next") {
  const auto card =
      std::make_shared<CardBackend>(std::make_shared<Card>(Mistake::none), Mistake::none);
  std::vector<std::string> trials;
  testkit::BackendCheckOptions options{.trials_per_op = 6};
  options.on_trial = [&](const std::string& trial) { trials.push_back(trial); };
  options.other_special_values["relu"] = "NaN is 0";
  const testkit::BackendCheck check = testkit::check_backend(card, options);
  CHECK(check.findings == std::vector<std::string>{});
  const auto tries = [&](const char* trial) {
    return std::ranges::find(trials, trial) != trials.end();
  };
  CHECK(tries("relu: relu() of f32[3, 4], dense inputs"));
  CHECK_FALSE(tries("relu: relu() of f32[3, 4], NaN, infinities and -0"));
  CHECK(tries("tanh: tanh() of f32[3, 4], NaN, infinities and -0"));
  CHECK(tries("model 'layers': 0 rows"));
  CHECK(check.ran.at("linear") == 6);
  CHECK(check.few.empty());
}

TEST_CASE("check_backend: nothing is found in the library's backends") {
  for (const char* name : {"reference", "cpu"}) {
    INFO(name);
    testkit::BackendCheckOptions options{.trials_per_op = 6};
    if (std::string_view(name) == "cpu") {
      options.other_special_values = {
          {"conv2d", "infinite weights are multiplied by the padding's zeros, too"},
          {"conv_transpose2d", "what is NaN or infinite is multiplied by zeros, too"},
          {"rfft", "NaN of one part may reach, or miss, the other one"},
          {"lu", "pivots are chosen in another order where there is NaN"},
          {"qr", "a column with NaN is reflected otherwise"}};
    }
    const testkit::BackendCheck check =
        testkit::check_backend(make_backend(name, {.threads = 2}), options);
    CHECK(check.findings == std::vector<std::string>{});
    CHECK(check.ran.size() > 130);
  }
}

TEST_CASE("check_backend: null is refused, and a backend that takes nothing has no findings") {
  CHECK_THROWS_AS(testkit::check_backend(nullptr), Error);
  const testkit::BackendCheck check =
      testkit::check_backend(make_null_backend({}), {.trials_per_op = 5});
  CHECK(check.findings == std::vector<std::string>{});
  CHECK(check.ran.empty());
  CHECK(check.left.at("relu") == "null runs nothing");
}

TEST_CASE("check_op: a device's backend may refuse what is not dense") {
  const Shape inputs[] = {Shape({3, 4}, f32)};
  const OpInstance softmax(Softmax{.axis = 1}), exp(*find_op("exp"));
  testkit::OpCheckOptions options{.backends = {std::make_shared<PickyBackend>()}};
  CHECK(testkit::check_op(softmax, inputs, options).size() > 1);
  options.may_refuse = true;
  CHECK(testkit::check_op(softmax, inputs, options) == std::vector<std::string>{});
  CHECK(testkit::check_op(exp, inputs, options).size() > 0);  // dense operands, too
}

}  // namespace
}  // namespace tenon::testing
