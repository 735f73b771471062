"""What tenon.ops has besides single ops, and the operators and methods of arrays and tensors: tenon/_arrays/.

The compiled part calls `booleans_as_numbers`, `common`, `true_divide` and `floor_divide` here.
"""

from ._arrays import complex_numbers, composed, indexing, making  # noqa: F401
from ._arrays import losses, mathematics, matrices, reductions, shaping, statistics  # noqa: F401
from ._arrays.methods import install  # noqa: F401
from ._arrays.operands import booleans_as_numbers, common, functions, take_other_spellings  # noqa: F401
from ._arrays.operators import floor_divide, true_divide  # noqa: F401

take_other_spellings()
