"""The numbers of docs/benchmarks.md are those of the results that are kept beside it."""

import re

from benchmarks import earnings, pages, scale


def test_the_page_is_what_its_results_say():
    page = pages.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+) -->", page)) == {"scale", "earnings", "end"}
    assert pages.written(page) == page


def test_everything_was_measured():
    assert set(pages.load(scale.KEPT)) == {row.name for row in scale.ROWS}
    kept = pages.load(earnings.KEPT)
    assert set(kept) == {setting.key for setting in earnings.settings()}
    assert all(set(cells) == {"whittle", *earnings.LEARNERS} for cells in kept.values())


def test_a_changed_number_is_noticed():
    kept = pages.load(scale.KEPT)
    name = scale.ROWS[0].name
    assert scale.table(kept) != scale.table(kept | {name: [99.0, 0.1]})
    assert "**no**" in scale.table({name: [99.0, 0.1]})
    assert "**no**" in scale.table({name: [0.01, scale.MOST_MEMORY + 0.1]})
