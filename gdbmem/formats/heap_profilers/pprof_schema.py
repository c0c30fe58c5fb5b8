"""The message types of pprof's profile.proto, declared for the protobuf library."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gdbmem.formats.protobuf_schema import message_class

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
