"""The socket: one stream per connection, events in and out."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastapi import WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from antiphon.api.model import Model
from antiphon.exceptions import AntiphonError
from antiphon.serve.answers import features_of
from antiphon.serve.batcher import packed
from antiphon.serve.guards import RefusedError
from antiphon.serve.schemas import StreamStart, check_characters, describe_errors
from antiphon.serve.service import Service
from antiphon.serve.streams import OpenStream, StreamHistory, StreamPool, StreamSearch, StreamStep, StreamStepResult
from antiphon.torch_free.codec import Chars

TOKENS_AT_ONCE = 8
"""Tokens that are read in one step, so that other streams need not wait for all of a long text or a long piece."""
_MAX_PENDING = 64
"""Messages that wait; a client that sends more has to wait itself."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
Event = dict[str, Any]


class CloseError(Exception):
    """The stream has to be closed: its code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class StreamSocket:
    """One connection."""

    model: Model
    """That of ``options.run``."""

    def __init__(self, service: Service, socket: WebSocket) -> None:
        self.service, self.socket, self.limits = service, socket, service.limits
        self.options: StreamStart | None = None
        self.pool: StreamPool | None = None
        self.stream = OpenStream()
        self.messages = asyncio.Queue[str | None](_MAX_PENDING)
        """What the client sent; None after the last message."""
        self._begin()

    def _begin(self) -> None:
        self.history, self.started, self.has_ended = StreamHistory(), time.perf_counter(), False

    async def run(self) -> None:
        """Serves the connection until one of both sides closes it."""
        service = self.service
        await self.socket.accept()
        if service.stopping.is_set() or service.open_streams >= self.limits.streams:
            service.metrics.refused.labels("streams").inc()
            await self._close(CloseError(1013, "too many streams are open, expected a connection later"))
            return
        service.open_streams += 1
        helpers = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._stop_with_service())]
        try:
            await self._serve()
        except CloseError as close:
            await self._close(close)
        except WebSocketDisconnect:
            pass
        finally:
            for helper in helpers:
                helper.cancel()
            service.open_streams -= 1
            self._leave()

    async def _receive(self) -> None:
        """Puts messages where ``_serve`` finds them; a client that sends too many has to wait."""
        with suppress(WebSocketDisconnect, RuntimeError):
            while (message := await self.socket.receive())["type"] != "websocket.disconnect":
                await self.messages.put(message.get("text") or "")
        await self.messages.put(None)

    async def _stop_with_service(self) -> None:
        """Ends the messages once the service stops."""
        await self.service.stopping.wait()
        await self.messages.put(None)

    async def _serve(self) -> None:
        while (message := await self._next_message()) is not None:
            try:
                await self._handle(message)
            except (AntiphonError, RefusedError) as error:
                await self._send({"event": "error", "error": str(error)})
        if self.service.stopping.is_set():
            raise CloseError(1012, "the service stops")

    async def _next_message(self) -> str | None:
        """The next message; a silent client is closed."""
        try:
            async with asyncio.timeout(self.limits.idle_seconds):
                return await self.messages.get()
        except TimeoutError:
            raise CloseError(4408, f"nothing was sent for {self.limits.idle_seconds:g} seconds") from None

    async def _handle(self, message: str) -> None:
        event = parse_event(message)
        kind = event.pop("event", None)
        if kind in ("start", "reset"):
            await self._start(event, is_reset=kind == "reset")
        elif kind == "read":
            await self._read(event)
        elif kind == "end":
            await self._end(event)
        else:
            raise RefusedError(422, "event: unknown, expected start, read, end or reset")

    async def _start(self, event: Event, *, is_reset: bool) -> None:
        """Starts an input; ``reset`` keeps the options that it does not name."""
        if is_reset == (self.options is None):
            raise RefusedError(422, "start comes first and once, reset after it")
        before = self.options.model_dump() if self.options is not None else {}
        try:
            options = StreamStart.model_validate(before | event)
        except ValidationError as error:
            raise RefusedError(422, describe_errors(error.errors())) from None
        options.run = self.service.run_name(options.run)
        model = self.service.model(options.run, "stream")
        stream = self._stream_of(options, model)
        self._leave()
        search = StreamSearch(options.policy, options.beam, options.margin)
        self.pool = self.service.pool(options.run, search)
        self.options, self.model, self.stream = options, model, stream
        self._begin()
        await self._send({"event": "started", **options.model_dump(exclude={"beam"})})

    def _stream_of(self, options: StreamStart, model: Model) -> OpenStream:
        """A stream with checked options."""
        if options.policy not in self.service.runs[options.run]["policies"]:
            raise RefusedError(422, f"policy: {options.run} has no policy {options.policy}, expected beam")
        self.service.check_candidates(options.beam)
        self.service.check_texts("features or prefix", options.features, "".join(options.prefix))
        features = features_of(model, options.features, "features")
        prefix = tuple(model.codec.target.known_ids(options.prefix, "prefix"))
        return OpenStream(features, options.emit_bias, prefix, options.watch)

    async def _read(self, event: Event) -> None:
        """Reads a token, or a text piece by piece."""
        self._check_open()
        text = event.get("token", event.get("text"))
        if not isinstance(text, str) or set(event) not in ({"token"}, {"text"}):
            raise RefusedError(422, "read: expected either a token or a text")
        if len(text) > self.limits.characters:
            raise CloseError(4413, f"a text of more than {self.limits.characters:,} characters")
        source = self.model.codec.source
        pieces = [text]
        if "text" in event:
            pieces = list(text) if isinstance(source.tokeniser, Chars) else text.split()
        tokens = [source.tokens(piece) for piece in pieces]
        if len(self.history.source) + sum(max(1, len(each)) for each in tokens) > self.limits.stream_tokens:
            raise CloseError(4413, f"an input of more than {self.limits.stream_tokens:,} tokens")
        for parts in steps_of(pieces, tokens):
            await self._read_parts(parts)
        if self.stream.watch and self.messages.empty() and self.history.source:
            await self._send_lattice()

    async def _read_parts(self, parts: "list[Part]") -> None:
        """Reads what is read in one step; the event of a piece comes with its first part."""
        result = await self._step(StreamStep(self.stream, [part.tokens for part in parts]))
        events: list[Event] = []
        for index, (part, written) in enumerate(zip(parts, result.written, strict=True)):
            if part.piece is not None:
                unknown = [token for token in part.piece_tokens if token not in self.model.codec.source.vocab]
                position = len(self.history.source) + len(part.piece_tokens)
                events.append(self._event("read", part.piece, position) | {"unknown": unknown})
            self.history.read(part.tokens)
            events += self._write(written)
            if self.stream.watch:
                self.history.watch(result.outputs[index])
        await self._send(*events)

    def _write(self, tokens: list[str]) -> list[Event]:
        """The events of tokens that are written now."""
        first = len(self.history.written) + 1
        self.history.write(tokens)
        return [self._event("write", token, position) for position, token in enumerate(tokens, first)]

    async def _end(self, event: Event) -> None:
        self._check_open()
        if event:
            raise RefusedError(422, "end: expected no other key")
        result = await self._step(StreamStep(self.stream, ends=True))
        events = self._write(result.rest)
        self.has_ended = True
        history = self.history
        ended: Event = {
            "event": "end",
            "text": self.model.codec.target.tokeniser.join(history.written),
            "tokens": history.written,
            "read": history.read_before,
            "AL": history.average_lagging,
            "time": self._seconds(),
        }
        await self._send(*events, ended)

    async def _send_lattice(self) -> None:
        run, history, stream = self._check_open().run, self.history, self.stream
        lattices = self.service.lattices[run]
        shown = await self.service.batcher.submit_alone(lambda: lattices.of_stream(history, stream))
        await self._send({"event": "lattice", "run": run, **shown})

    def _check_open(self) -> StreamStart:
        """The options of the input; refuses what comes before its start or after its end."""
        if self.options is None:
            raise RefusedError(422, "start: expected before anything else")
        if self.has_ended:
            raise RefusedError(422, "the input has ended, expected reset")
        return self.options

    async def _step(self, step: StreamStep) -> StreamStepResult:
        """The result of a step, computed with those of other streams."""
        assert self.pool is not None
        started = time.perf_counter()
        (result,) = await self.service.batcher.submit(self.pool, [step], self.pool.advance, of_stream=True)
        metrics = self.service.metrics
        metrics.stream_seconds.observe(time.perf_counter() - started)
        metrics.tokens.labels("read").inc(sum(map(len, step.pieces)))
        metrics.tokens.labels("write").inc(sum(map(len, result.written)) + len(result.rest))
        return result  # type: ignore[no-any-return]

    def _event(self, event: str, token: str, position: int) -> Event:
        return {"event": event, "token": token, "position": position, "time": self._seconds()}

    def _seconds(self) -> float:
        return round(time.perf_counter() - self.started, 6)

    async def _send(self, *events: Event) -> None:
        """Sends events; a client that does not take them is closed."""
        try:
            async with asyncio.timeout(self.limits.send_seconds):
                for event in events:
                    await self.socket.send_text(_encode(event))
        except TimeoutError:
            raise CloseError(4429, "the client does not read what is written") from None
        except RuntimeError:  # the connection is closed already
            raise WebSocketDisconnect(1006) from None

    async def _close(self, close: CloseError) -> None:
        with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(self.limits.send_seconds):
                if self.socket.application_state is WebSocketState.CONNECTED:
                    await self.socket.close(close.code, close.reason)

    def _leave(self) -> None:
        """Leaves the other streams, and frees the place of this one."""
        if self.pool is not None:
            self.pool.close(self.stream)
            self.pool = None


def parse_event(message: str) -> Event:
    """The object of a message."""
    try:
        event = json.loads(check_characters(message))
        if "\\u" in message:  # only an escape can name half of a character
            check_characters(_encode(event))
    except (ValueError, RecursionError):
        raise RefusedError(400, 'not JSON, expected an object such as {"event": "end"}') from None
    if not isinstance(event, dict):
        raise RefusedError(400, 'not a JSON object, expected one such as {"event": "end"}')
    return event


class Part(NamedTuple):
    """Tokens that are read together: of a piece, or of a part of a long one; only the first part has ``piece``."""

    tokens: Sequence[str]
    piece: str | None
    piece_tokens: Sequence[str]


def steps_of(pieces: Sequence[str], tokens: Sequence[Sequence[str]]) -> Iterator[list[Part]]:
    """The parts of pieces, given with their tokens, that are read in each step."""
    parts = [
        Part(read[start : start + TOKENS_AT_ONCE], None if start else piece, read)
        for piece, read in zip(pieces, tokens, strict=True)
        for start in range(0, max(1, len(read)), TOKENS_AT_ONCE)
    ]
    return packed(parts, lambda part: max(1, len(part.tokens)), TOKENS_AT_ONCE)
