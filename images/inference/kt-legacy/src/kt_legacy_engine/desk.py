"""One thread that has the model, and the one request it works on."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable

from kt_legacy_engine.conversation import Conversation
from kt_legacy_engine.errors import ApiError, busy, engine_gone, not_ready, stopping
from kt_legacy_engine.generating import Ask, Event, Finish, Finished, Piece, generate
from kt_legacy_engine.metrics import Metrics
from kt_legacy_engine.model import EngineBroken, EngineGone, Model, Tokenizer
from kt_legacy_engine.stage import Progress, Stage
from kt_legacy_engine.warming import WarmUpFailed, warm_up

Say = Callable[[str], None]


class Run:
    """One reply in the making. Its events end with `Finished` or with an error.

    `left`: whether nobody waits for it any more, asked before every token, from the model's thread.
    """

    def __init__(self, ask: Ask, rid: str, left: Callable[[], bool]) -> None:
        self.ask = ask
        self.rid = rid
        self._left = left
        self.events: asyncio.Queue[Event | ApiError] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set() or self._left()

    def cancel(self) -> None:
        """Takes effect after the token, or the chunk of the prompt, that is being computed."""
        self._cancelled.set()


class Desk:
    """`load` returns when the model is loaded, and tells `progress` until then.

    `lost`: called in the event loop when the engine can't be used any more.
    """

    def __init__(
        self,
        load: Callable[[Progress], Model],
        tokenizer: Tokenizer,
        *,
        chunk_tokens: int,
        say: Say,
        lost: Callable[[BaseException], None],
    ) -> None:
        self._load = load
        self._tokenizer = tokenizer
        self._chunk_tokens = chunk_tokens
        self._say = say
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._runs: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._running: Run | None = None
        self._stopped = False
        self._conversation: Conversation | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self.progress = Progress()
        self.metrics = Metrics()

    def start(self) -> None:
        self._thread.start()

    async def begin(self, ask: Ask, rid: str, left: Callable[[], bool]) -> Run:
        """Refuses while another request runs. One that was cancelled is over within a token."""
        self._refuse_unready()
        while (other := self._running) is not None:
            if not other.cancelled:
                self.metrics.refused += 1
                raise busy()
            await other.ended.wait()
            # It may have ended with the engine, or for its stop.
            self._refuse_unready()
        run = self._running = Run(ask, rid, left)
        self._runs.put(run)
        return run

    def _refuse_unready(self) -> None:
        if self.progress.stage is Stage.FAILED:
            raise engine_gone()
        if self._stopped:
            # The thread takes up nothing more: whoever waits for it would hear nothing.
            raise stopping()
        if self.progress.stage is not Stage.READY:
            raise not_ready()

    def abort(self, rid: str) -> bool:
        run = self._running
        if run is None or run.rid != rid:
            return False
        run.cancel()
        return True

    def stop(self) -> None:
        """Cancels what runs; the thread ends after it."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()
        self._runs.put(None)

    def metrics_text(self) -> str:
        conversation = self._conversation
        return self.metrics.text(
            ready=self.progress.stage is Stage.READY,
            running=self._running is not None,
            cached_tokens=conversation.cached_tokens if conversation else 0,
        )

    # --- the thread ---

    def _work(self) -> None:
        try:
            model = self._load(self.progress)
            self.progress.stage = Stage.WARMING
            warm_up(model, self._tokenizer, self._chunk_tokens, self._say)
            self._conversation = Conversation(
                model, chunk_tokens=self._chunk_tokens, counters=self.metrics.tokens
            )
            self.progress.stage = Stage.READY
            for run in iter(self._runs.get, None):
                self._serve(run, self._conversation)
        except (EngineBroken, EngineGone, WarmUpFailed) as error:
            self.progress.reason = str(error)
            self._say(f"error: {error}")
            self._fail(error)
        except BaseException as error:
            # A mistake of ours: without this thread nothing answers any more.
            self._fail(error)
            raise

    def _serve(self, run: Run, conversation: Conversation) -> None:
        began = heard = time.monotonic()
        try:
            for event in generate(run.ask, conversation, self._tokenizer, lambda: run.cancelled):
                if isinstance(event, Finished):
                    self._account(run, event, heard - began, time.monotonic() - heard)
                    self._loop.call_soon_threadsafe(self._end, run, event)
                    return
                if isinstance(event, Piece) and heard == began:
                    heard = time.monotonic()
                self._loop.call_soon_threadsafe(run.events.put_nowait, event)
        except BaseException:
            # Whatever it was: somebody waits for the end of this reply.
            self.metrics.failed += 1
            self.progress.stage = Stage.FAILED
            self._loop.call_soon_threadsafe(self._end, run, engine_gone())
            raise

    def _account(self, run: Run, finished: Finished, prefill_s: float, decode_s: float) -> None:
        self.metrics.finished[finished.finish] += 1
        self.metrics.prefill_s += prefill_s
        self.metrics.decode_s += decode_s
        why = "left or aborted" if finished.finish is Finish.ABORT else finished.finish.value
        self._say(
            f"request {run.rid}: {len(run.ask.prompt)} prompt tokens, {finished.tokens} tokens, "
            f"{why}, first after {prefill_s:.2f} s, then {decode_s:.2f} s"
        )

    def _fail(self, error: BaseException) -> None:
        self.progress.stage = Stage.FAILED
        self._loop.call_soon_threadsafe(self._lost, error)

    def _end(self, run: Run, last: Event | ApiError) -> None:
        """In the event loop: whoever reads the last event finds the desk free."""
        run.events.put_nowait(last)
        run.ended.set()
        if self._running is run:
            self._running = None
