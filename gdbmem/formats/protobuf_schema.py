"""Message types declared as tables for the protobuf library, which needs no compiler of .proto files then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gdbmem.errors import MissingToolError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto


Field = tuple[str, int, str]  # its name, number, type ("*": repeated; a capital: another message)


def message_class(messages: Mapping[str, Sequence[Field]], root: str) -> Any:
    """Return the class of the message *root*. Raises MissingToolError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # slow to import
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
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto  # slow to import

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


# The message types of pprof's profile.proto, declared for the protobuf library.


# The comment by which our own difference is known as one, also if nothing in it shrank.
DIFFERENCE = "gdbmem: a difference of two profiles"

_MESSAGES = {
    "Profile": (
        ("sample_type", 1, "*ValueType"), ("sample", 2, "*Sample"), ("mapping", 3, "*Mapping"),
        ("location", 4, "*Location"), ("function", 5, "*Function"), ("string_table", 6, "*bytes"),
        ("drop_frames", 7, "int64"), ("keep_frames", 8, "int64"), ("time_nanos", 9, "int64"),
        ("duration_nanos", 10, "int64"), ("period_type", 11, "ValueType"), ("period", 12, "int64"),
        ("comment", 13, "*int64"), ("default_sample_type", 14, "int64"), ("doc_url", 15, "int64"),
    ),
    "ValueType": (("type", 1, "int64"), ("unit", 2, "int64")),
    "Sample": (("location_id", 1, "*uint64"), ("value", 2, "*int64"), ("label", 3, "*Label")),
    "Label": (("key", 1, "int64"), ("str", 2, "int64"), ("num", 3, "int64"), ("num_unit", 4, "int64")),
    "Mapping": (
        ("id", 1, "uint64"), ("memory_start", 2, "uint64"), ("memory_limit", 3, "uint64"),
        ("file_offset", 4, "uint64"), ("filename", 5, "int64"), ("build_id", 6, "int64"),
        ("has_functions", 7, "bool"), ("has_filenames", 8, "bool"), ("has_line_numbers", 9, "bool"),
        ("has_inline_frames", 10, "bool"),
    ),
    "Location": (
        ("id", 1, "uint64"), ("mapping_id", 2, "uint64"), ("address", 3, "uint64"), ("line", 4, "*Line"),
        ("is_folded", 5, "bool"),
    ),
    "Line": (("function_id", 1, "uint64"), ("line", 2, "int64"), ("column", 3, "int64")),
    "Function": (
        ("id", 1, "uint64"), ("name", 2, "int64"), ("system_name", 3, "int64"), ("filename", 4, "int64"),
        ("start_line", 5, "int64"),
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def profile_message() -> Any:
    """Return the class of a whole profile. Raises MissingToolError if protobuf is not installed.

    Strings are declared as bytes: a file with a name that is not UTF-8 is accepted.
    """
    return message_class(_MESSAGES, "Profile")
