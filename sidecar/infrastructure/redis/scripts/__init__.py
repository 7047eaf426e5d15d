"""The Lua scripts, as files: each is headed KEYS, ARGV, RETURNS and why it must be a script."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def hit() -> str:
    """`hit.lua` with every algorithm in it; Redis has no `require`."""
    algorithms = sorted((_FOLDER / "algorithms").glob("*.lua"))
    joined = "\n".join(path.read_text(encoding="utf-8") for path in algorithms)
    return (_FOLDER / "hit.lua").read_text(encoding="utf-8").replace("--@algorithms", joined)


def change_control() -> str:
    return (_FOLDER / "change_control.lua").read_text(encoding="utf-8")


def heartbeat() -> str:
    return (_FOLDER / "heartbeat.lua").read_text(encoding="utf-8")


def census() -> str:
    return (_FOLDER / "census.lua").read_text(encoding="utf-8")
