"""Registration with numba: the types of vectors, and the LLVM instructions that replace functions in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


class Vector(types.Type):
    """numba type of a vector."""

    def __init__(self, name: str, element: ir.Type, lanes: int = 16) -> None:
        super().__init__(name=name)
        self.backend = ir.VectorType(element, lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.backend)


class Code(NamedTuple):
    """LLVM's builder, with numba's context and types of a call."""

    context: Any
    builder: Any
    kinds: tuple
    """Types of the arguments."""
    result: Any
    """Type of the result."""

    def pointer(self, argument: int, array: Any, at: Any, kind: ir.Type) -> Any:
        """Return a pointer to ``array[at]``; `argument` is the position of the array among the arguments."""
        data = self.context.make_array(self.kinds[argument])(self.context, self.builder, array).data
        return self.builder.bitcast(self.builder.gep(data, [at]), kind.as_pointer())

    def element(self, argument: int) -> ir.Type:
        """Return the LLVM type of the elements of an argument, which is an array."""
        return self.context.get_data_type(self.kinds[argument].dtype)

    @property
    def has_avx512(self) -> bool:
        """True if the code may use the 32 registers of AVX-512; others have half the size or half the number."""
        return "+avx512f" in self.context.codegen().magic_tuple()[2]

    def offsets(self, at: Any, step: Any, size: int) -> list:
        """Compute the offsets `at`, `at` + `step`, ... ."""
        offsets = [at]
        for _ in range(size - 1):
            offsets.append(self.builder.add(offsets[-1], step))
        return offsets

    def load(self, argument: int, array: Any, offsets: list, vector: ir.VectorType) -> list:
        """Load vectors of this type, aligned as the elements of the array."""
        align = self.kinds[argument].dtype.bitwidth // 8
        return [self.builder.load(self.pointer(argument, array, at, vector), align=align) for at in offsets]

    def store(self, array: Any, offsets: list, vectors: list) -> None:
        """Write vectors to the call's first argument, aligned as its elements."""
        align = self.kinds[0].dtype.bitwidth // 8
        for at, vector in zip(offsets, vectors, strict=True):
            self.builder.store(vector, self.pointer(0, array, at, vector.type), align=align)


def register(function: Callable, kinds: tuple, emit: Callable, result: Any) -> None:
    """Register a function with numba for arguments of these kinds, lowered by ``emit(code, *values)``.

    Parameters
    ----------
    function : callable
        Function that runs if the JIT is disabled.
    kinds : tuple
        Types or classes of types; any integer is converted to an intp.
    emit : callable
        Receives a `Code` and LLVM values, a list for a tuple; returns a value, a list for a tuple, or None.
    result : numba type or callable
        Type of the result, or a function that returns it for the argument types; None if they are invalid.
    """

    def is_of(argument: Any, kind: Any) -> bool:
        if kind == types.intp:
            return isinstance(argument, types.Integer)
        return isinstance(argument, kind) if isinstance(kind, type) else argument == kind

    class _Template(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            assert not kws
            if len(args) != len(kinds) or not all(map(is_of, args, kinds)):
                return None
            given = [types.intp if kind == types.intp else arg for arg, kind in zip(args, kinds, strict=True)]
            returned = result if isinstance(result, types.Type) else result(*given)
            return None if returned is None else signature(returned, *given)

    def lower(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
        values = [
            cgutils.unpack_tuple(builder, value) if isinstance(kind, types.UniTuple) else value
            for kind, value in zip(sig.args, args, strict=True)
        ]
        done = emit(Code(context, builder, sig.args, sig.return_type), *values)
        if done is None:
            return context.get_dummy_value()
        return cgutils.pack_array(builder, done) if isinstance(done, list) else done

    infer_global(function)(_Template)
    lower_builtin(function, *kinds)(lower)
