"""Charts: text and numbers as they are written, scales at their edges, keys that need several rows."""

import re
from xml.etree import ElementTree as ET

import pytest

from gdbmem.terminal.charting import (
    Plot,
    Swatch,
    box,
    drawing,
    element,
    group,
    key_in_columns,
    key_in_rows,
    round_step,
    round_up,
    sheet,
    text,
)

pytestmark = pytest.mark.quick

EVIL = "</title></svg><script>alert('1')</script>\"&\x1b[31m\udcff"


def test_a_strangers_text_is_text_in_elements_tooltips_and_attributes() -> None:
    parts = [text(0, 0, EVIL), box(0, 0, 1, 1, "#000", tip=EVIL), group(tip=EVIL, aria_label=EVIL)]
    root = ET.fromstring(drawing((10, 10), parts))
    names = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert names == ["svg", "text", "rect", "title", "g", "title"]
    shown = [root[0].text, root[1][0].text, root[2][0].text, root[2].get("aria-label")]
    assert len(set(shown)) == 1
    assert shown[0] is not None and shown[0].startswith("</title></svg><script>alert('1')</script>\"&")
    assert "\x1b" not in shown[0]


def test_positions_are_short_and_exact_values_are_whole() -> None:
    drawn = element(
        "rect", x=1.0, y=2.346, width=10.0, data_value=12345678901234567890, fill=None, class_="a"
    )
    assert drawn == '<rect x="1" y="2.35" width="10" data-value="12345678901234567890" class="a"/>'


@pytest.mark.parametrize("edges", [(0, 0), (5, 5)])
def test_a_plot_of_a_single_value_has_finite_positions(edges: tuple[float, float]) -> None:
    plot = Plot(90, 10, 800, 300, edges, edges)
    assert (plot.x(edges[0]), plot.y(edges[0])) == (90, 10)


def test_levels_and_moments_stand_at_their_values() -> None:
    plot = Plot(100, 10, 800, 300, (0, 10), (-10, 20))
    lines = re.findall(r'y1="([^"]+)"[^>]*stroke="([^"]+)"', plot.levels((-10, 0, 20), str, zero="#999"))
    assert lines == [("310", "#dddddd"), ("210", "#999"), ("10", "#dddddd")]
    assert re.findall(r'<text x="([^"]+)"', plot.moments([(0, "a"), (5, "b")])) == ["100", "500"]


@pytest.mark.parametrize("unit", [1, 1 << 10, 1 << 20, 1 << 40])
@pytest.mark.parametrize(
    ("value", "top"),
    [
        (1.2, 1.5),
        (6.9, 8),
        (9.7, 10),
        (26, 30),
        (30.5, 40),
        (51, 60),
        (83, 100),
        (101, 150),
        (501, 600),
        (990, 1024),
    ],
)
def test_an_axis_ends_soon_above_the_largest_value_at_a_round_size(
    value: float, top: float, unit: int
) -> None:
    assert round_up(value * unit) == top * unit


def test_a_key_goes_on_in_the_next_row_or_column() -> None:
    entries = [(letter * 10, "#000") for letter in "abcde"]
    drawn, rows = key_in_rows(entries, (90, 0), 350, Swatch())
    places = [re.match(r'<rect x="(\d+)" y="(\d+)"', one) for one in drawn]
    assert rows == 3
    assert [one and one.groups() for one in places] == [
        ("90", "0"), ("200", "0"), ("90", "18"), ("200", "18"), ("90", "36"),
    ]  # fmt: skip
    second = key_in_columns(entries, (0, 4), (2, 300), Swatch())[3]
    assert second.startswith('<rect x="300" y="22"')


def test_a_file_has_a_white_ground_and_a_size() -> None:
    root = ET.fromstring(sheet((300, 200), []))
    assert (root.get("width"), root.get("viewBox"), root[0].get("fill")) == ("300", "0 0 300 200", "#ffffff")


@pytest.mark.parametrize(("value", "step"), [(0, 1), (0.3, 1), (1, 1), (1.1, 2), (3, 5), (7, 10), (120, 200)])
def test_a_step_is_a_round_number(value: float, step: int) -> None:
    assert round_step(value) == step
