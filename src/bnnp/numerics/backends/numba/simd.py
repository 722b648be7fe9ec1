"""Vectors of numbers for compiled loops: `get` and `put` them in arrays, and calculate with them by `+ - * /` and `-x`.

A compiler vectorises a loop over a handful of numbers badly, since it must fear that arrays overlap, and it does not
keep sums in registers. With these a loop over many small matrices at once reads like a loop over one.
"""

import operator
from typing import no_type_check

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, lower_builtin, models, overload, register_model, type_callable

LANES = 16
"""Numbers in a vector: as many float32 as the longest registers of today's CPUs hold. Others take several."""
_EXACT = ["contract"]  # a product and a sum may be rounded once; values that are not finite stay visible


class Vector(types.Type):
    """`LANES` numbers of one kind."""

    def __init__(self, dtype: types.Type):
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        number = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[kind.dtype]
        super().__init__(manager, kind, ir.VectorType(number, LANES))


@intrinsic
@no_type_check
def _pointer(_, address, number):
    """An address as one of numbers of that kind."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(number)(address, number), no_type_check(generate)


@numba.njit
@no_type_check
def array(described, number):
    """The contiguous array of numbers of that kind whose address and shape the caller gives in one tuple."""
    return numba.carray(_pointer(described[0], number), described[1:])


def arrays(record, number):
    """The arrays of all tuples in a record. Loops call it; what is compiled for them is below."""


@overload(arrays)
@no_type_check
def _arrays(record, number):
    if len(record) == 1:
        return lambda record, number: (array(record[0], number),)
    return lambda record, number: (array(record[0], number),) + arrays(record[1:], number)  # noqa: RUF005


@intrinsic
@no_type_check
def get(_, array, index):
    """The numbers from `array[index]` on, of a contiguous array; an index may leave out the last axes."""

    def generate(context, builder, signature, arguments):
        pointer, alignment = _place(context, builder, signature.args, arguments)
        vector = builder.load(pointer)
        vector.align = alignment
        return vector

    return Vector(array.dtype)(array, index), no_type_check(generate)


@intrinsic
@no_type_check
def put(_, array, index, vector):
    """Write what `get` reads."""

    def generate(context, builder, signature, arguments):
        pointer, alignment = _place(context, builder, signature.args, arguments)
        builder.store(arguments[2], pointer).align = alignment
        return context.get_dummy_value()

    return types.void(array, index, vector), no_type_check(generate)


@intrinsic
@no_type_check
def get_part(_, array, index, begin, end, others):
    """A vector with the numbers from `array[index]` on in lanes `begin` to `end`, and those of `others` elsewhere."""

    def generate(context, builder, signature, arguments):
        pointer, alignment, mask = _part(context, builder, signature.args, arguments)
        vector = arguments[4].type
        load = _masked(builder, "load", vector, [pointer.type, ir.IntType(32), mask.type, vector], vector)
        return builder.call(load, [pointer, alignment, mask, arguments[4]])

    return Vector(array.dtype)(array, index, begin, end, others), no_type_check(generate)


@intrinsic
@no_type_check
def put_part(_, array, index, begin, end, vector):
    """Write lanes `begin` to `end` of a vector to `array[index]` and on, and touch no other number."""

    def generate(context, builder, signature, arguments):
        pointer, alignment, mask = _part(context, builder, signature.args, arguments)
        vector = arguments[4].type
        store = _masked(builder, "store", vector, [vector, pointer.type, ir.IntType(32), mask.type], ir.VoidType())
        builder.call(store, [arguments[4], pointer, alignment, mask])
        return context.get_dummy_value()

    return types.void(array, index, begin, end, vector), no_type_check(generate)


@intrinsic
@no_type_check
def with_part(_, vector, begin, end, inside):
    """A vector with lanes `begin` to `end` from another."""

    def generate(context, builder, signature, arguments):
        mask = _lanes(context, builder, signature.args[1:3], arguments[1:3])[1]
        return builder.select(mask, arguments[3], arguments[0])

    return vector(vector, begin, end, inside), no_type_check(generate)


@intrinsic
@no_type_check
def filled(_, number):
    """A vector of equal numbers."""

    def generate(context, builder, signature, arguments):
        return _filled(builder, arguments[0], context.get_value_type(signature.return_type))

    return Vector(number)(number), no_type_check(generate)


@intrinsic
@no_type_check
def lesser(_, x, y):
    """The lesser of two numbers in every lane; `y` where they cannot be compared."""

    def generate(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return x(x, y), no_type_check(generate)


@intrinsic
@no_type_check
def total_of(_, vector):
    """The sum of all lanes."""

    def generate(context, builder, signature, arguments):
        kind = arguments[0].type
        name = f"llvm.vector.reduce.fadd.{_name(kind)}"
        function = ir.FunctionType(kind.element, [kind.element, kind])
        reduce = cgutils.get_or_insert_function(builder.module, function, name)
        return builder.call(reduce, [kind.element(0), arguments[0]], fastmath=["reassoc"])

    return vector.dtype(vector), no_type_check(generate)


def _place(context, builder, kinds, arguments):
    """The address of the first number, and its alignment."""
    array = context.make_array(kinds[0])(context, builder, arguments[0])
    sizes = cgutils.unpack_tuple(builder, array.shape)
    parts = cgutils.unpack_tuple(builder, arguments[1])
    parts = [context.cast(builder, part, kind, types.intp) for part, kind in zip(parts, kinds[1].types, strict=True)]
    parts += [ir.IntType(64)(0)] * (len(sizes) - len(parts))
    offset = parts[0]
    for size, part in zip(sizes[1:], parts[1:], strict=True):
        offset = builder.add(builder.mul(offset, size), part)
    vector = context.get_value_type(Vector(kinds[0].dtype))
    pointer = builder.bitcast(builder.gep(array.data, [offset]), vector.as_pointer())
    return pointer, context.get_abi_sizeof(vector.element)


def _part(context, builder, kinds, arguments):
    """Where lane 0 would lie if lane `begin` lies at the index, the alignment, and which lanes are meant."""
    pointer, alignment = _place(context, builder, kinds[:2], arguments[:2])
    begin, mask = _lanes(context, builder, kinds[2:4], arguments[2:4])
    element = builder.bitcast(pointer, pointer.type.pointee.element.as_pointer())
    first = builder.bitcast(builder.gep(element, [builder.neg(builder.sext(begin, ir.IntType(64)))]), pointer.type)
    return first, ir.IntType(32)(alignment), mask


def _lanes(context, builder, kinds, bounds):
    """The first lane, and a mask of those between the bounds."""
    begin, end = (context.cast(builder, bound, kind, types.int32) for bound, kind in zip(bounds, kinds, strict=True))
    lanes = ir.VectorType(ir.IntType(32), LANES)
    numbers = ir.Constant(lanes, list(range(LANES)))
    from_begin = builder.icmp_signed(">=", numbers, _filled(builder, begin, lanes))
    return begin, builder.and_(from_begin, builder.icmp_signed("<", numbers, _filled(builder, end, lanes)))


def _masked(builder, what, vector, arguments, result):
    """LLVM's load or store of some lanes of a vector."""
    name = f"llvm.masked.{what}.{_name(vector)}.p0"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _name(vector):
    return f"v{LANES}f{32 if isinstance(vector.element, ir.FloatType) else 64}"


def _filled(builder, number, kind):
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _define(symbol, instruction):
    @type_callable(symbol)
    @no_type_check
    def typing(_):
        def same_kind(x, y):
            return x if isinstance(x, Vector) and x == y else None

        return no_type_check(same_kind)

    @lower_builtin(symbol, Vector, Vector)
    @no_type_check
    def generate(_, builder, signature, arguments):
        return getattr(builder, instruction)(*arguments, flags=_EXACT)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _instruction)


@type_callable(operator.neg)
@no_type_check
def _type_negative(_):
    def same_kind(x):
        return x if isinstance(x, Vector) else None

    return no_type_check(same_kind)


@lower_builtin(operator.neg, Vector)
@no_type_check
def _generate_negative(_, builder, signature, arguments):
    return builder.fneg(arguments[0])
