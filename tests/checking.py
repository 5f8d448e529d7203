"""Shapes and types of arguments and answers, each looked at once a call.

jaxtyping's own decorator binds the arguments to the signature, checks them, calls, and checks them again beside the answer:
twice the time, in functions that a fit calls thousands of times, and twice the code to compile when they are imported.
"""

import functools

from beartype import beartype
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import TypeCheckError, _decorator, config, jaxtyped
from jaxtyping._storage import pop_shape_memo, push_shape_memo


def checked(function):
    """The function, with its arguments and its answer checked; the letters of shapes mean one thing in a call."""
    annotations = function.__annotations__
    function.__annotations__ = {
        name: _decorator._destring_annotation(hint, function.__globals__) for name, hint in annotations.items()
    }
    try:
        inner = beartype(function)
    finally:
        function.__annotations__ = annotations
    if inner is function:
        return function

    @functools.wraps(function)
    def wrapper(*given, **named):
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*given, **named)
        push_shape_memo({})
        try:
            return inner(*given, **named)
        except BeartypeCallHintParamViolation:
            # Which says what was wrong with which argument, before it calls.
            return jaxtyped(function, typechecker=beartype)(*given, **named)
        except BeartypeCallHintReturnViolation as error:
            raise TypeCheckError(str(error)) from error
        finally:
            pop_shape_memo()

    return wrapper
