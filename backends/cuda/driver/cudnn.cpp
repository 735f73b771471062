// Convolutions by cuDNN's graph interface.
#include "driver/vendor_library.hpp"

#include <array>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cudnn_graph.h>
#include <fmt/format.h>

namespace tenon::cuda {
namespace {

// clang-format off
#define TENON_CUDNN_FUNCTIONS(X) \
  X(cudnnCreate) X(cudnnDestroy) X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnSetStream) \
  X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendFinalize) \
  X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendExecute)
// clang-format on

TENON_VENDOR_LIBRARY(Library, TENON_CUDNN_FUNCTIONS);

struct Failure {
  cudnnStatus_t status;
};

/// A descriptor of the interface, whose attributes are lists of one type. Throws Failure.
class Descriptor {
 public:
  Descriptor(const Library& library, cudnnBackendDescriptorType_t type) : library_(&library) {
    check(library_->p_cudnnBackendCreateDescriptor(type, &handle_));
  }
  ~Descriptor() {
    if (handle_ != nullptr) library_->p_cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::span<const T> values) {
    check(library_->p_cudnnBackendSetAttribute(
        handle_, name, type, static_cast<std::int64_t>(values.size()), values.data()));
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  const T& value) {
    return set(name, type, std::span<const T>(&value, 1));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    return set<std::int64_t>(name, CUDNN_TYPE_INT64, values);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.handle_);
  }
  Descriptor& finalize() {
    check(library_->p_cudnnBackendFinalize(handle_));
    return *this;
  }
  /// How many values there are; as many as fit are stored.
  template <class T>
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::span<T> values) const {
    std::int64_t count = 0;
    check(library_->p_cudnnBackendGetAttribute(
        handle_, name, type, static_cast<std::int64_t>(values.size()), &count, values.data()));
    return count;
  }
  cudnnBackendDescriptor_t handle() const noexcept { return handle_; }

 private:
  static void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) throw Failure{status};
  }
  const Library* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// The numbers of tensors in a call.
enum Tensor : std::int64_t {
  tensor_x = 1,
  tensor_w,
  tensor_y,
  tensor_bias,
  tensor_sum,
  tensor_biased
};

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::f32) return CUDNN_DATA_FLOAT;
  return dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

cudnnPointwiseMode_t mode_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return CUDNN_POINTWISE_IDENTITY;
    case Activation::relu:
      return CUDNN_POINTWISE_RELU_FWD;
    case Activation::sigmoid:
      return CUDNN_POINTWISE_SIGMOID_FWD;
    case Activation::tanh:
      return CUDNN_POINTWISE_TANH_FWD;
    case Activation::silu:
      return CUDNN_POINTWISE_SWISH_FWD;
    case Activation::gelu:
      return CUDNN_POINTWISE_GELU_FWD;
    case Activation::gelu_tanh:
      return CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
  }
  return CUDNN_POINTWISE_IDENTITY;
}

std::string key_of(ConvolutionCall call) {
  call.x = call.w = call.y = call.bias = call.workspace = 0;
  return {reinterpret_cast<const char*>(&call), sizeof call};
}

class Cudnn final : public VendorFunction<ConvolutionCall> {
 public:
  Cudnn(const Library& library, cudnnHandle_t handle) : library_(library), handle_(handle) {}
  ~Cudnn() override {
    plans_.clear();
    library_.p_cudnnDestroy(handle_);
  }

  std::optional<std::string> refuses(const ConvolutionCall& call) override {
    const std::scoped_lock lock(mutex_);
    if (plan_for(call)) return std::nullopt;
    return "cuDNN has no engine for it";
  }

  std::optional<std::string> run(const ConvolutionCall& call, void* stream) override {
    const std::scoped_lock lock(mutex_);
    const std::optional<Descriptor>& plan = plan_for(call);
    if (!plan) return "cuDNN has no engine for it";
    try {
      std::vector<std::int64_t> ids{tensor_x, tensor_w, tensor_y};
      std::vector<void*> pointers;
      for (const Address address : {call.x, call.w, call.y}) pointers.push_back(pointer(address));
      if (call.has_bias) {
        ids.push_back(tensor_bias);
        pointers.push_back(pointer(call.bias));
      }
      Descriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers)
          .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
          .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, pointer(call.workspace))
          .finalize();
      cudnnStatus_t status = library_.p_cudnnSetStream(handle_, static_cast<cudaStream_t>(stream));
      if (status == CUDNN_STATUS_SUCCESS) {
        status = library_.p_cudnnBackendExecute(handle_, plan->handle(), pack.handle());
      }
      if (status != CUDNN_STATUS_SUCCESS) throw Failure{status};
      return std::nullopt;
    } catch (const Failure& failure) {
      return fmt::format("cuDNN: {}", library_.p_cudnnGetErrorString(failure.status));
    }
  }

 private:
  static void* pointer(Address address) { return reinterpret_cast<void*>(address); }

  const std::optional<Descriptor>& plan_for(const ConvolutionCall& call) {
    const auto [found, is_new] = plans_.try_emplace(key_of(call));
    if (is_new) {
      try {
        choose(call, found->second);
      } catch (const Failure&) {  // no plan
      }
    }
    return found->second;
  }

  /// A dense tensor of four axes; a virtual one has no memory.
  Descriptor tensor(std::int64_t id, DType dtype, std::span<const std::int64_t> sizes,
                    bool is_virtual = false) {
    std::array<std::int64_t, 4> strides{};
    std::int64_t step = 1;
    for (std::size_t axis = 4; axis-- > 0;) {
      strides[axis] = step;
      step *= sizes[axis];
    }
    Descriptor made(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = is_virtual ? CUDNN_DATA_FLOAT : type_of(dtype);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
             static_cast<std::int64_t>(routine_alignment))
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual)
        .finalize();
    return made;
  }

  /// Of f32 arithmetic. A NaN stays one.
  Descriptor pointwise(cudnnPointwiseMode_t mode) {
    Descriptor made(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    made.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
      made.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
               CUDNN_PROPAGATE_NAN);
    }
    made.finalize();
    return made;
  }

  /// The first engine that cuDNN suggests, whose arithmetic and workspace are allowed.
  void choose(const ConvolutionCall& call, std::optional<Descriptor>& plan) {
    const Descriptor x = tensor(tensor_x, call.dtype, call.x_sizes);
    const Descriptor w = tensor(tensor_w, call.dtype, call.w_sizes);
    const Descriptor y = tensor(tensor_y, call.dtype, call.y_sizes);
    const Descriptor sum = tensor(tensor_sum, call.dtype, call.y_sizes, true);
    const Descriptor biased = tensor(tensor_biased, call.dtype, call.y_sizes, true);
    const bool has_activation = call.activation != Activation::none;
    // What the bias is added to, and the activation applied to.
    const Descriptor& summed = call.has_bias || has_activation ? sum : y;
    const Descriptor& activated = call.has_bias ? biased : sum;
    const std::array<std::int64_t, 4> bias_sizes{1, call.y_sizes[1], 1, 1};
    const Descriptor bias = tensor(tensor_bias, call.dtype, bias_sizes);
    const float one = 1, zero = 0;

    Descriptor convolution(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, call.before)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, call.after)
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, call.dilation)
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, call.stride)
        .finalize();
    Descriptor forward(library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    forward.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, summed)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, one)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, zero)
        .finalize();
    const Descriptor addition = pointwise(CUDNN_POINTWISE_ADD);
    const Descriptor activation = pointwise(mode_of(call.activation));
    Descriptor add(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> operations{forward.handle()};
    if (call.has_bias) {
      add.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, addition)
          .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum)
          .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias)
          .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, has_activation ? biased : y)
          .finalize();
      operations.push_back(add.handle());
    }
    Descriptor activate(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    if (has_activation) {
      activate.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, activation)
          .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, activated)
          .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
          .finalize();
      operations.push_back(activate.handle());
    }
    Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph
        .set<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       operations)
        .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .finalize();
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      try_engines(call, graph, mode, plan);
      if (plan) return;
    }
  }

  void try_engines(const ConvolutionCall& call, const Descriptor& graph,
                   cudnnBackendHeurMode_t mode, std::optional<Descriptor>& plan) {
    constexpr std::size_t tried = 16;
    Descriptor heuristics(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)
        .finalize();
    std::vector<Descriptor> configurations;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (std::size_t i = 0; i < tried; ++i) {
      configurations.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      handles.push_back(configurations.back().handle());
    }
    const std::int64_t found = heuristics.get<cudnnBackendDescriptor_t>(
        CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles);
    for (std::size_t i = 0; i < std::min<std::size_t>(tried, static_cast<std::size_t>(found));
         ++i) {
      try {
        if (!is_allowed(call, configurations[i])) continue;
        Descriptor made(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_)
            .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configurations[i])
            .finalize();
        std::array<std::int64_t, 1> workspace{};
        made.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                               workspace);
        if (static_cast<std::uint64_t>(workspace[0]) > call.workspace_bytes) continue;
        plan.emplace(std::move(made));
        return;
      } catch (const Failure&) {  // the next one
      }
    }
  }

  /// The same bits in every run; f32 in f32, unless TF32 was asked for.
  bool is_allowed(const ConvolutionCall& call, const Descriptor& configuration) {
    Descriptor engine(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    std::array<cudnnBackendDescriptor_t, 1> handle{engine.handle()};
    configuration.get<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINECFG_ENGINE,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, handle);
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    const std::int64_t count = engine.get<cudnnBackendNumericalNote_t>(
        CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
    for (std::size_t i = 0; i < std::min(notes.size(), static_cast<std::size_t>(count)); ++i) {
      const cudnnBackendNumericalNote_t note = notes[i];
      if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
          note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) {
        return false;
      }
      const bool rounds = note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                          note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
      if (rounds && call.dtype == DType::f32 && !call.allows_tf32) return false;
    }
    return true;
  }

  const Library& library_;
  cudnnHandle_t handle_;
  std::mutex mutex_;
  std::map<std::string, std::optional<Descriptor>> plans_;
};

}  // namespace

Vendor<ConvolutionCall> open_cudnn() {
  static const Library library("libcudnn.so.9");
  if (const std::string& missing = library.found.missing(); !missing.empty()) {
    return {nullptr, "no cuDNN: " + missing};
  }
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = library.p_cudnnCreate(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    return {nullptr, fmt::format("no cuDNN: {}", library.p_cudnnGetErrorString(status))};
  }
  return {std::make_unique<Cudnn>(library, handle),
          "cuDNN " + version_text(library.p_cudnnGetVersion())};
}

}  // namespace tenon::cuda
