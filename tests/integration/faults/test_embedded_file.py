"""What the embedded store has written is all that there is after a crash of the machine."""

from pathlib import Path

from tests.faults.cut_short import CUT_BYTES, LEAST_BYTES, cut_short


def test_an_append_only_file_without_its_end_costs_the_last_requests_and_no_more(tmp_path: Path) -> None:
    """It starts by itself; what is lost of a request is lost of all its rules, and counting goes on."""
    charged, counted, agreeing = cut_short(tmp_path, 60)
    lost = charged - counted
    assert 1 <= len(lost) <= CUT_BYTES // LEAST_BYTES
    assert lost == set(sorted(charged)[-len(lost) :])
    assert counted <= charged
    for each, shared in agreeing.values():
        assert each == shared
