"""A token's task goes on in the turn of the loop in which the token came."""

import asyncio

import pytest

from gateway.prompt import Prompt


def _in_order(end: str) -> list[str]:
    """What happens, and in which order, when a task waits and its wait ends so."""

    async def scene() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        prompt = Prompt(loop=loop)

        async def wait() -> None:
            try:
                await prompt
                seen.append("woken")
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)

        def come() -> None:
            prompt.keep()
            seen.append("come")

        if end == "kept":
            loop.call_soon(come)
        else:
            task.cancel()
            seen.append("asked to")
        await asyncio.wait({task})
        return [*seen, "ends cancelled" if task.cancelled() else "ends"]

    return asyncio.run(scene())


def test_its_task_goes_on_before_whoever_keeps_it_does() -> None:
    assert _in_order("kept") == ["woken", "come", "ends"]


def test_a_task_that_is_cancelled_is_so_in_its_own_turn() -> None:
    assert _in_order("cancelled") == ["asked to", "cancelled", "ends cancelled"]


def test_one_that_is_kept_already_is_not_waited_for() -> None:
    async def scene() -> bool:
        prompt = Prompt(loop=asyncio.get_running_loop())
        prompt.keep()
        await prompt
        return True

    assert asyncio.run(scene())


def test_the_task_that_goes_on_is_the_current_one() -> None:
    async def scene() -> str:
        prompt = Prompt(loop=asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(prompt.keep)
        task = asyncio.current_task()
        await prompt
        assert asyncio.current_task() is task
        return "same task"

    assert asyncio.run(scene()) == "same task"


def test_it_is_for_one_task() -> None:
    async def scene() -> None:
        prompt = Prompt(loop=asyncio.get_running_loop())
        first = asyncio.create_task(asyncio.wait_for(prompt, None))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task"):
            prompt.add_done_callback(lambda _: None)
        asyncio.get_running_loop().call_soon(prompt.keep)
        await first

    asyncio.run(scene())
