#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/host_view.hpp>
#include <tenon/lowered.hpp>
#include <tenon/op.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon {

/// What a kernel is called with, once by each thread that takes part.
struct KernelCall {
  std::span<const HostView> inputs;
  /// May be the memory of an input that the op's `in_place_inputs` names.
  HostView output;
  /// What `prepare` made, by input; null where it made nothing.
  std::span<const void* const> prepared;
  int thread = 0;   ///< 0 .. threads - 1
  int threads = 1;  ///< that share the work of this call

  struct Part {
    std::int64_t begin, end;
  };
  /// This thread's part of `count` items, such as rows.
  Part share(std::int64_t count) const noexcept {
    return {count * thread / threads, count * (thread + 1) / threads};
  }
  template <class T>
  const T* prepared_as(std::size_t input) const noexcept {
    return static_cast<const T*>(prepared[input]);
  }
};

/// How one backend computes an op. Thread-safe: sessions call it at once.
template <OpStruct Op>
struct OpKernel {
  /// Why this kernel does not run a step (its operands' types, sizes and strides), or nothing when
  /// it does. Null: it runs every one. Steps that are refused are offered again with operands that
  /// were copied to dense memory or widened to f32, where the backend does that.
  std::function<std::optional<std::string>(const Op& op, const Step& step)> constraint{};
  /// Makes of a constant input what `run` wants to read instead, such as packed weights: once, when
  /// weights are bound. `constant` is dense. Null, or a null result: the input stays as it is.
  std::function<std::shared_ptr<const void>(const Op& op, std::size_t input,
                                            const HostBuffer& constant)>
      prepare{};
  /// Computes this thread's part of the output from inputs of the strides that `constraint` let
  /// pass. All threads are called, each has ended before the output is read. An exception ends the
  /// run and arrives at its caller; the output then holds anything.
  std::function<void(const Op& op, const KernelCall& call)> run{};
};

/// The same with the op type-erased.
struct KernelDef {
  const OpDef* op = nullptr;
  std::function<std::optional<std::string>(const Step& step)> constraint{};
  std::function<std::shared_ptr<const void>(const OpInstance& op, std::size_t input,
                                            const HostBuffer& constant)>
      prepare{};
  std::function<void(const OpInstance& op, const KernelCall& call)> run{};
};

/// Adds a kernel for a backend of that name, for as long as the process lives: plans that are made
/// from now on use it where its constraint holds, before older kernels and the backend's own.
/// "cpu" is the one of the library's backends that has room for them. The op need not be
/// registered. Thread-safe. Errors: Errc::bad_argument without an op or `run`; Errc::unsupported
/// for ops that are views or update a tensor in place.
void register_kernel(std::string_view backend, KernelDef kernel);
template <OpStruct Op>
void register_kernel(std::string_view backend, OpKernel<Op> kernel);

using KernelPtr = std::shared_ptr<const KernelDef>;
/// For authors of backends: the first of the registered kernels, newest first, that runs a step, or
/// null. `why`, unless null, then says why the newest one does not; it stays as it is where there
/// is none.
KernelPtr find_kernel(std::string_view backend, const Step& step,
                      std::optional<std::string>* why = nullptr);

template <OpStruct Op>
void register_kernel(std::string_view backend, OpKernel<Op> kernel) {
  KernelDef def;
  def.op = &op_def<Op>();
  if (kernel.constraint) {
    def.constraint = [constraint = std::move(kernel.constraint)](const Step& step) {
      return constraint(*step.op.as<Op>(), step);
    };
  }
  if (kernel.prepare) {
    def.prepare = [prepare = std::move(kernel.prepare)](const OpInstance& op, std::size_t input,
                                                        const HostBuffer& constant) {
      return prepare(*op.as<Op>(), input, constant);
    };
  }
  if (kernel.run) {
    def.run = [run = std::move(kernel.run)](const OpInstance& op, const KernelCall& call) {
      run(*op.as<Op>(), call);
    };
  }
  register_kernel(backend, std::move(def));
}

}  // namespace tenon
