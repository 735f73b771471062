#pragma once

#include <tenon/fields.hpp>
#include <tenon/name.hpp>
#include <tenon/nn/linear.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/glu.hpp>
#include <tenon/weights_view.hpp>

#include <optional>
#include <source_location>
#include <string_view>

namespace tenon::nn {

/// Applies an activation by name: silu, gelu, gelu_tanh, quick_gelu, relu, relu_squared or sigmoid.
/// Errc::bad_attribute for another name.
Tensor activate(const Tensor& x, Name activation,
                const std::source_location& where = std::source_location::current());

/// activation(gate) * up, for an activation that `glu` knows, or for "swiglu_oai":
/// quick_gelu(min(gate, 7)) * (clamp(up, -7, 7) + 1), as gpt-oss computes (OpenAI, gpt-oss model card, 2025).
Tensor gated(const Tensor& gate, const Tensor& up, Name activation,
             const std::source_location& where = std::source_location::current());

/// The activation xIELU (Huang and Schlag, Deriving Activation Functions Using Integration, arXiv:2411.13010), as Apertus has it:
/// positive x^2 + beta x where x > 0, else negative (e^min(x, eps) - 1 - x) + beta x.
struct Xielu {
  double positive = 1;
  double negative = 1;
  double beta = 0.5;
  double eps = -1e-6;  ///< at most 0
};
Tensor xielu(const Tensor& x, const Xielu& options,
             const std::source_location& where = std::source_location::current());

/// relu(x - (mean + cutoff * deviation)), with mean and standard deviation of the last axis: what lies above, of a normal
/// distribution a share that the cutoff tells (Gemma 3n).
Tensor above_cutoff(const Tensor& x, double cutoff,
                    const std::source_location& where = std::source_location::current());

/// Names of a feed-forward layer's parts below its view, by default those of Hugging Face's Llama, Qwen and Gemma. A file
/// may have no gate.
struct FeedForwardNames {
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};

/// down(activation(up(x))), or with a gate: down(activation(gate(x)) * up(x)).
template <class T = Tensor>
struct FeedForward {
  std::optional<Linear<T>> gate;
  Linear<T> up;
  Linear<T> down;
  Name activation = "silu";
  std::optional<Xielu> own_activation;  ///< in place of `activation`, where there is no gate
  std::optional<double> cutoff;         ///< of what the gate gives, see above_cutoff()
  TENON_FIELDS(gate, up, down, activation, own_activation, cutoff)

  static FeedForward init(const WeightsView& view, Name activation = "silu",
                          const FeedForwardNames& names = {},
                          const std::source_location& where = std::source_location::current()) {
    FeedForward made;
    if (view[names.gate].contains("weight")) made.gate = Linear<T>::init(view[names.gate], where);
    made.up = Linear<T>::init(view[names.up], where);
    made.down = Linear<T>::init(view[names.down], where);
    made.activation = activation;
    return made;
  }

  Tensor forward(const Tensor& x,
                 const std::source_location& where = std::source_location::current()) const
    requires std::same_as<T, Tensor>
  {
    const Tensor wide = up.forward(x, where);
    return down.forward(gate ? opened(gate->forward(x, where), wide, where) : active(wide, where),
                        where);
  }

 private:
  Tensor opened(const Tensor& open, const Tensor& wide, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return gated(cutoff ? above_cutoff(open, *cutoff, where) : open, wide, activation, where);
  }
  Tensor active(const Tensor& wide, const std::source_location& where) const
    requires std::same_as<T, Tensor>
  {
    return own_activation ? xielu(wide, *own_activation, where) : activate(wide, activation, where);
  }
};

}  // namespace tenon::nn
