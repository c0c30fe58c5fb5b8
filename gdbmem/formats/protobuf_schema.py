"""Message types declared as tables for the protobuf library, which needs no compiler of .proto files then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gdbmem.errors import MissingToolError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto  # 29 ms

Field = tuple[str, int, str]  # its name, number, type ("*": repeated; a capital: another message)


def message_class(messages: Mapping[str, Sequence[Field]], root: str) -> Any:
    """Return the class of the message *root*. Raises MissingToolError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # 29 ms
    except ImportError:
        raise MissingToolError(
            "protobufs (pprof's profiles, TensorFlow's memory dumps) need Python's protobuf package, which is not here",
            slug="no-protobuf",
            hint="quit gdb and use the 'gdbmem' command, which brings it along",
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name=f"gdbmem/{root}.proto", package="gdbmem", syntax="proto3")
    for name, fields in messages.items():
        _declare(file.message_type.add(name=name), fields)
    pool: Any = descriptor_pool.DescriptorPool()  # the stubs for Python 3.9 have no types for its methods
    pool.AddSerializedFile(file.SerializeToString())
    message = pool.FindMessageTypeByName(f"gdbmem.{root}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(message)
    factory: Any = message_factory.MessageFactory(pool)  # of protobuf before 4.22
    return factory.GetPrototype(message)


def _declare(message: DescriptorProto, fields: Sequence[Field]) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto  # 29 ms

    types = {
        "int32": FieldDescriptorProto.TYPE_INT32,
        "int64": FieldDescriptorProto.TYPE_INT64,
        "uint64": FieldDescriptorProto.TYPE_UINT64,
        "bool": FieldDescriptorProto.TYPE_BOOL,
        "bytes": FieldDescriptorProto.TYPE_BYTES,
        "float": FieldDescriptorProto.TYPE_FLOAT,
    }
    for name, number, kind in fields:
        plain = kind.lstrip("*")
        field = message.field.add(name=name, number=number)
        repeated, optional = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL
        field.label = repeated if kind.startswith("*") else optional
        field.type = types.get(plain, FieldDescriptorProto.TYPE_MESSAGE)
        if plain not in types:
            field.type_name = f".gdbmem.{plain}"
