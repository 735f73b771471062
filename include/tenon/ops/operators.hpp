// Arithmetic as it is written: x * 2 + y. Scalars take the tensor's dtype; errors name the line.
#pragma once

#include <tenon/tensor.hpp>

namespace tenon {

Tensor operator+(const Located& a, const Located& b);
Tensor operator-(const Located& a, const Located& b);
Tensor operator*(const Located& a, const Located& b);
Tensor operator/(const Located& a, const Located& b);
Tensor operator-(const Located& x);

Tensor operator+(const Located& a, double b);
Tensor operator-(const Located& a, double b);
Tensor operator*(const Located& a, double b);
Tensor operator/(const Located& a, double b);

Tensor operator+(double a, const Located& b);
Tensor operator-(double a, const Located& b);
Tensor operator*(double a, const Located& b);
Tensor operator/(double a, const Located& b);

}  // namespace tenon
