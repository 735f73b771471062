#include <tenon/error.hpp>
#include <tenon/nn/feed_forward.hpp>

#include <fmt/format.h>

namespace tenon::nn {

Tensor activate(const Tensor& x, Name activation, const std::source_location& where) {
  const std::string_view word = activation.text();
  if (word == "silu") return silu(x, where);
  if (word == "gelu") return gelu(x, where);
  if (word == "gelu_tanh") return gelu_tanh(x, where);
  if (word == "relu") return relu(x, where);
  if (word == "sigmoid") return sigmoid(x, where);
  throw Error(
      Errc::bad_attribute, where,
      fmt::format("no activation '{}'; there are silu, gelu, gelu_tanh, relu, sigmoid", word));
}

}  // namespace tenon::nn
