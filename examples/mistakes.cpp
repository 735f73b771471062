// Three common mistakes in a model struct, and the error message of each.
#include <tenon/tenon.hpp>

#include <cstdio>
#include <utility>
#include <vector>

using namespace tenon;

namespace {

const std::vector<std::pair<std::string, Shape>> declared = {
    {"up.weight", Shape({128, 64}, f32)},
    {"down.weight", Shape({10, 256}, f32)},  // 256, where up gives 128
    {"scale.weight", Shape({64}, f32)},
};

template <class T = Tensor>
struct WrongSize {
  T up, down;
  TENON_FIELDS(up, down)
  Tensor forward(const Tensor& x) const {
    const Tensor hidden = silu(linear(x.with_tags({"b", "in"}), up)).with_tags({"b", "hidden"});
    return linear(hidden, down);
  }
};

template <class T = Tensor>
struct WrongTag {
  T up;
  TENON_FIELDS(up)
  Tensor forward(const Tensor& x) const {
    const Tensor tagged = x.with_tags({"batch", "in"});
    return sum(tagged, {"features"});
  }
};

template <class T = Tensor>
struct Unlisted {
  T up, scale;
  TENON_FIELDS(up)  // scale is missing
  Tensor forward(const Tensor& x) const { return linear(x * scale, up); }
};

template <class Model>
void show(const char* mistake, const Model& model) {
  std::printf("%s\n", mistake);
  try {
    compile<&Model::forward>(model, {Shape({8, 64}, f32)});
    std::printf("  no error\n");
  } catch (const Error& error) {
    std::printf("  %s\n\n", error.what());
  }
}

}  // namespace

int main() {
  const WeightsView weights("model.safetensors", declared);
  const Tensor up = weights.tensor("up.weight");
  show("A layer that does not fit the one before:", WrongSize<>{up, weights.tensor("down.weight")});
  show("An axis tag that the tensor does not have:", WrongTag<>{up});
  show("A weight that forward uses but TENON_FIELDS does not list:",
       Unlisted<>{up, weights.tensor("scale.weight")});
  return 0;
}
