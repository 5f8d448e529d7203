"""Requests wait in lanes for the one before them, and hold nothing once nobody waits for them."""

import asyncio
import gc
import threading
import weakref

from gwi.web.serve.app import Lanes


def test_rows_that_nobody_waits_for_any_more_are_let_go():
    """A request that took too long stays in its lane until those before it are done; its rows do not."""

    class Rows:
        pass

    async def run():
        lanes, begun, go = Lanes(), threading.Event(), threading.Event()

        def first():
            begun.set()
            return go.wait(20)

        before = asyncio.create_task(lanes.run(True, first))
        await asyncio.to_thread(begun.wait, 20)
        rows = Rows()
        known, called = weakref.ref(rows), []
        late = asyncio.create_task(lanes.run(True, called.append, rows))
        del rows
        await asyncio.sleep(0)
        assert known() is not None
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        del late
        gc.collect()
        assert known() is None
        go.set()
        assert await before
        lanes.close()
        assert called == []

    asyncio.run(run())
