"""Servers that know the same, played by the test: who is asked when, and who is believed."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from sidecar.infrastructure.redis import first_answer as module
from sidecar.infrastructure.redis.first_answer import first_answer

Ask = Callable[[], Coroutine[None, None, str | None]]


@pytest.fixture
def asked() -> list[str]:
    """Who was asked, in order."""
    return []


def knows(asked: list[str], answer: str | None) -> Ask:
    async def ask() -> str | None:
        asked.append(str(answer))
        return answer

    return ask


def hangs(asked: list[str]) -> Ask:
    async def ask() -> str | None:
        asked.append("hangs")
        await asyncio.Event().wait()
        return None

    return ask


async def test_who_answers_is_believed_and_nobody_else_asked(asked: list[str]) -> None:
    """One question is enough where the first one knows."""
    assert await first_answer([knows(asked, "a"), knows(asked, "b")]) == "a"
    assert asked == ["a"]


async def test_the_next_is_asked_where_one_knows_nothing(asked: list[str]) -> None:
    """One after the other, until somebody knows."""
    assert await first_answer([knows(asked, None), knows(asked, None), knows(asked, "c")]) == "c"
    assert asked == ["None", "None", "c"]


async def test_one_that_hangs_holds_up_nobody(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next is asked beside it, and nothing of it is left behind."""
    monkeypatch.setattr(module, "NEXT_SECONDS", 0.001)
    assert await first_answer([hangs(asked), hangs(asked), knows(asked, "c")]) == "c"
    assert asked == ["hangs", "hangs", "c"]
    assert len(asyncio.all_tasks()) == 1


async def test_nobody_knows(asked: list[str]) -> None:
    """Whether they were asked or there is nobody."""
    assert await first_answer([knows(asked, None), knows(asked, None)]) is None
    nobody: list[Ask] = []
    assert await first_answer(nobody) is None


async def test_who_does_not_wait_for_the_end_leaves_nothing_behind(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled question is asked nobody any more."""
    monkeypatch.setattr(module, "NEXT_SECONDS", 0.001)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await first_answer([hangs(asked), hangs(asked)])
    assert len(asyncio.all_tasks()) == 1
