"""The message types of pprof's profile.proto, declared for the protobuf library."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gdbmem.errors import MissingToolError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

# message → its fields: name, number, type ("*": repeated; a capital: another message)
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
    """Return the class of a whole profile. Raises MissingToolError where protobuf is not installed.

    Strings are declared as bytes: a name that is no UTF-8 is no reason to refuse the file.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MissingToolError(
            "profiles of pprof need Python's protobuf package, which is not here",
            slug="no-protobuf",
            hint="leave gdb and use the 'gdbmem' command, which brings it along",
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="gdbmem/profile.proto", package="gdbmem", syntax="proto3")
    for name, fields in _MESSAGES.items():
        _declare(file.message_type.add(name=name), fields)
    pool: Any = descriptor_pool.DescriptorPool()  # the stubs for Python 3.9 have no types for its methods
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gdbmem.Profile"))


def _declare(message: DescriptorProto, fields: tuple[tuple[str, int, str], ...]) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    types = {
        "int64": Field.TYPE_INT64,
        "uint64": Field.TYPE_UINT64,
        "bool": Field.TYPE_BOOL,
        "bytes": Field.TYPE_BYTES,
    }
    for name, number, kind in fields:
        plain = kind.lstrip("*")
        field = message.field.add(name=name, number=number)
        field.label = Field.LABEL_REPEATED if kind.startswith("*") else Field.LABEL_OPTIONAL
        field.type = types.get(plain, Field.TYPE_MESSAGE)
        if plain not in types:
            field.type_name = f".gdbmem.{plain}"
