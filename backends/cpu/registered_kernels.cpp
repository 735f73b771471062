#include "registered_kernels.hpp"

#include "base/immortal.hpp"
#include "task.hpp"

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tenon {

TENON_DEFINE_OP(registered, Registered);

Shape Registered::infer(std::span<const Shape> in) const {
  return step->op.def()->infer(step->op.attributes(), in);
}

namespace cpu {
namespace {

/// Calls a registered kernel's `prepare`.
class RegisteredRecipe final : public Recipe {
 public:
  RegisteredRecipe(const RegisteredStep& step, std::size_t input) : step_(step), input_(input) {}

  // Registered kernels live as long as the process: their addresses tell them apart.
  std::string key(const Shape& shape) const override {
    return fmt::format("registered {} {} input {} {}", static_cast<const void*>(step_.kernel.get()),
                       to_string(step_.op), input_, to_string(shape));
  }
  std::shared_ptr<const void> make(const HostBuffer& value, ThreadPool& /*pool*/,
                                   const Done& done) const override {
    auto made = step_.kernel->prepare(step_.op, input_, value);
    done(value.shape().bytes());
    return made;
  }

 private:
  RegisteredStep step_;
  std::size_t input_;
};

class RegisteredTask final : public Task {
 public:
  RegisteredTask(const Step& step, Compiler& compiler)
      : step_(*step.op.as<Registered>()->step), inputs_(step.inputs), output_(step.output) {
    prepared_.resize(inputs_.size());
    if (!step_.kernel->prepare) return;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].place.kind != Place::Kind::constant) continue;
      prepared_[i] =
          compiler.prepare(inputs_[i], std::make_shared<const RegisteredRecipe>(step_, i));
    }
  }

  void run(const TaskContext& context) const noexcept override {
    try {
      if (inputs_.size() <= max_on_stack) {
        std::array<HostView, max_on_stack> views;
        std::array<const void*, max_on_stack> prepared{};
        call(context, std::span(views).first(inputs_.size()),
             std::span(prepared).first(inputs_.size()));
      } else {
        std::vector<HostView> views(inputs_.size());
        std::vector<const void*> prepared(inputs_.size());
        call(context, views, prepared);
      }
    } catch (...) {
      context.fault.report(std::current_exception());
    }
  }

 private:
  static constexpr std::size_t max_on_stack = 8;  // inputs, for which nothing is allocated

  void call(const TaskContext& context, std::span<HostView> views,
            std::span<const void*> prepared) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      views[i] = context.frame.view(inputs_[i]);
      prepared[i] = prepared_[i] ? context.constant_or_null(*prepared_[i]) : nullptr;
    }
    KernelCall call;
    call.inputs = views;
    call.output = context.frame.view(output_);
    call.prepared = prepared;
    call.thread = context.alone ? 0 : context.worker.thread;
    call.threads = context.alone ? 1 : context.worker.threads;
    step_.kernel->run(step_.op, call);
  }

  const RegisteredStep& step_;  // of the partition
  std::vector<Operand> inputs_;
  Operand output_;
  std::vector<std::optional<PreparedIndex>> prepared_;
};

std::unique_ptr<Task> make(const Step& step, Compiler& compiler) {
  return std::make_unique<RegisteredTask>(step, compiler);
}

}  // namespace

extern const Kernel registered_kernel;
constinit const Kernel registered_kernel{op_def<Registered>, takes_everything, make};

KernelPtr registered_kernel_for(const Step& step, std::optional<std::string>* why) {
  if (step.kind != Step::Kind::op) return nullptr;
  KernelPtr found = find_kernel("cpu", step, why);
  const OpDef& def = *step.op.def();
  if (found != nullptr || !def.traits.takes_objects || def.reference == nullptr) return found;
  return process_wide([] {
    KernelDef kernel;
    kernel.run = [](const OpInstance& op, const KernelCall& call) {
      if (call.thread == 0) op.def()->reference(op.attributes(), call.inputs, call.output);
    };
    return std::make_shared<const KernelDef>(std::move(kernel));
  });
}

std::vector<std::unique_ptr<const RegisteredStep>> take_registered_steps(std::vector<Step>& steps) {
  std::vector<std::unique_ptr<const RegisteredStep>> taken;
  for (Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      for (auto& inner : take_registered_steps(step.body)) taken.push_back(std::move(inner));
      continue;
    }
    KernelPtr kernel = registered_kernel_for(step);
    if (kernel == nullptr) continue;
    taken.push_back(std::make_unique<const RegisteredStep>(std::move(step.op), std::move(kernel)));
    step.op = OpInstance(Registered{taken.back().get()});
  }
  return taken;
}

}  // namespace cpu
}  // namespace tenon
