"""The judgements of gates as text and as JSON, the same in every gate."""

from __future__ import annotations

from gdbmem.files import JsonObject
from gdbmem.json_values import from_json
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET, Judgement
from gdbmem.records import asdict

_WORDS = {MET: "ok", NOT_MET: "NOT MET", NOT_JUDGED: "NOT JUDGED"}


def judgement_line(judgement: Judgement) -> str:
    """Return ``ok``, ``NOT MET`` or ``NOT JUDGED``, then what was seen and the reasons why it isn't judged."""
    return f"{_WORDS[judgement.judged]:<10} {judgement.sentence}"


def judgement_object(judgement: Judgement) -> dict[str, object]:
    """Return the JSON object of *judgement*: its fields, `judged` first; numbers that are unknown are null."""
    return {
        "judged": judgement.judged,
        **asdict(judgement),
        "unseen": [asdict(one) for one in judgement.unseen],
    }


def read_judgement(document: JsonObject) -> Judgement:
    """Return the judgement that `judgement_object` wrote. Raises ValueError for an object of another form."""
    fields = {key: value for key, value in document.items() if key != "judged"}
    return from_json(Judgement, fields)
