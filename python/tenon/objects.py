"""Objects of Python's classes as values of programs."""

import copy as _copy

from . import _tenon


def object_class(cls=None, *, name=None, linear=False, copy=_copy.deepcopy, save=None, load=None):
    """Makes a class one of values: an object of it is an input, a result or a constant of programs.

        @tenon.object_class(linear=True)
        class Counter:
            def __init__(self, count=0):
                self.count = count

        @tenon.op(updates=0)
        def count_up(counter, by):
            counter.count += int(by)

    Texts have it under its name, as a type: `def forward(c0: Counter, by: i64):`. `linear` says that its objects
    change: such an object is used once by what changes it, is no constant, and is copied, by `copy`, where a run
    changes what its caller keeps. Objects of other classes are shared, also by threads. `save` gives the bytes of an
    object and `load` takes them: what files and snapshots have of a constant. `copy` may be None: such objects have to
    be given by object_buffer(x), in a buffer that is donated.

    Ops of Python's (`tenon.op(objects=True)`, or `updates=` an operand) compute with them. A class is known by its name
    for as long as the process lives.
    """
    if cls is None:
        return lambda made: object_class(made, name=name, linear=linear, copy=copy, save=save, load=load)
    from .ir import add_object

    word = name or cls.__name__
    _tenon._register_class(cls, word, linear, copy, save, load)
    add_object(cls, word, linear, save, load)
    return cls
