"""Functions, operators and methods of arrays and tensors, by what they do. A @_public function is one of tenon.ops."""
