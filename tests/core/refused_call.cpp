// Calls of a compiled model that the compiler refuses in one error; check_refused_call.cmake
// compiles one CASE at a time.
#include <tenon/exe.hpp>

#include <utility>

namespace {

template <class T = tenon::Tensor>
struct Sum {
  T weight;
  TENON_FIELDS(weight)
  tenon::Tensor forward(const tenon::Tensor& x, const tenon::Tensor&) const { return x; }
};

}  // namespace

void call(tenon::BoundExe<&Sum<>::forward>& run, tenon::Buffer& x, const tenon::Shape& shape) {
  static_cast<void>(shape);
#if defined(CASE_good)
  run(x, std::move(x));
#elif defined(CASE_too_many)
  run(x, x, x);
#elif defined(CASE_too_few)
  run(x);
#elif defined(CASE_other_type)
  run(x, shape.rank());
#else
#error "no CASE"
#endif
}
