"""Both processes and the port, from the start to the end."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from typing_extensions import Self

from kt_legacy_engine.app import App
from kt_legacy_engine.arguments import Arguments
from kt_legacy_engine.asking import Asking
from kt_legacy_engine.connection import Protocol
from kt_legacy_engine.desk import Desk
from kt_legacy_engine.model import EngineGone
from kt_legacy_engine.pipe import Spec
from kt_legacy_engine.refusals import Refused
from kt_legacy_engine.remote import RemoteModel, Worker, words_of
from kt_legacy_engine.settings import Settings
from kt_legacy_engine.stage import Progress, Stage
from kt_legacy_engine.tokenizing import (
    FileTokenizer,
    UnusableModelFolder,
    default_sampling,
)

STOP = (signal.SIGTERM, signal.SIGINT)
# Streams that were cancelled end within a token. For what does not.
_GRACE_S = 10
# An interpreter with torch in it takes its time to end.
_EXITS_WITHIN_S = 30
_BROKEN = 1


@dataclass(frozen=True, slots=True)
class Service:
    asking: Asking
    key: str
    port: int
    chunk_tokens: int
    about: tuple[str, ...]

    @classmethod
    def prepared(
        cls,
        settings: Settings,
        arguments: Arguments,
        model_path: Path,
        *,
        key: str,
        about: tuple[str, ...],
    ) -> Self:
        """`about`: what is known of the kernels before the model is loaded, for people."""
        try:
            tokenizer = FileTokenizer(model_path, settings.system_message)
            temperature, top_p = default_sampling(model_path)
        except UnusableModelFolder as error:
            raise Refused(
                f"the folder of the model {model_path} can't be used",
                why=(str(error),),
                next_step="set --model_path to the folder with config.json and the tokenizer",
            ) from error
        asking = Asking(
            tokenizer=tokenizer,
            model_name=settings.model_name,
            context_tokens=arguments.cache_lens,
            vocabulary=tokenizer.vocabulary,
            max_tokens=arguments.max_new_tokens,
            temperature=temperature,
            top_p=top_p,
        )
        return cls(asking, key, settings.listen_port, arguments.chunk_size, about)


async def serve(
    service: Service,
    spec: Spec,
    command: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> int:
    """0 when it was told to stop. Otherwise the engine ended by itself, or broke."""
    return await _Running(service, spec, Worker(command, environment), say).until_the_end()


class _Running:
    def __init__(
        self, service: Service, spec: Spec, worker: Worker, say: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._worker = worker
        self._say = say
        self._code: int | None = None
        self._desk = Desk(
            self._load,
            service.asking.tokenizer,
            chunk_tokens=service.chunk_tokens,
            say=say,
            lost=self._lost,
        )
        for line in service.about:
            say(line)
        self._desk.progress.about += service.about
        app = App(self._desk, service.asking, key=service.key)
        self._server = _Server(_config(app, service.port))

    async def until_the_end(self) -> int:
        for number in STOP:
            self._loop.add_signal_handler(number, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
        self._worker.watch(self._ended_there)
        self._desk.start()
        try:
            await self._server.serve()
        except SystemExit:
            # The port is taken, which uvicorn has said.
            self._end(_BROKEN)
        finally:
            self._worker.end()
        return _BROKEN if self._code is None else self._code

    def _load(self, progress: Progress) -> RemoteModel:
        return self._worker.load(self._spec, progress, self._say)

    def _stop(self) -> None:
        self._say("stopping")
        self._end(0)

    def _lost(self, error: BaseException) -> None:
        if isinstance(error, EngineGone):
            # The exit code of the other process says more, and is about to arrive.
            self._loop.call_later(_EXITS_WITHIN_S, self._end, _BROKEN)
        else:
            self._end(_BROKEN)

    def _ended_there(self, code: int) -> None:
        self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        if self._code is None:
            self._say(f"error: {words_of(code)}")
            self._desk.progress.stage = Stage.FAILED
            self._end(code)

    def _end(self, code: int) -> None:
        """The first reason counts."""
        if self._code is None:
            self._code = code
            self._desk.stop()
            self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours: uvicorn's would end the process by the signal itself, so with another exit code."""
        yield


def _config(app: App, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        host="0.0.0.0",  # noqa: S104 - the container's own network namespace
        port=port,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
    )
