"""What the embedded store has written is all that there is after a crash of the machine."""

from pathlib import Path

from tests.faults.cut_short import cut_short


def test_an_append_only_file_without_its_end_costs_the_last_request_at_most(tmp_path: Path) -> None:
    """It starts by itself; what is lost of a request is lost of all its rules, and counting goes on."""
    charged, counted, agreeing = cut_short(tmp_path, 60)
    assert charged - counted <= {max(charged)}
    assert counted <= charged
    for each, shared in agreeing.values():
        assert each == shared
