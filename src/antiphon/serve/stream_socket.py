"""The socket: one stream per connection, events in and out."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastapi import WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from antiphon.exceptions import AntiphonError
from antiphon.serve.guards import RefusedError
from antiphon.serve.operations import features_of
from antiphon.serve.request_bodies import StreamStart, check_characters
from antiphon.serve.service import Service
from antiphon.serve.stream_history import StreamHistory
from antiphon.serve.stream_pool import OpenStream, StreamPool, StreamSearch, StreamStep, StreamStepResult
from antiphon.serve.validation_errors import describe_errors
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

    def __init__(self, service: Service, socket: WebSocket) -> None:
        self.service, self.socket, self.limits = service, socket, service.limits
        self.options: StreamStart | None = None
        self.search: StreamSearch | None = None
        self.pool: StreamPool | None = None
        self.stream = OpenStream()
        self.messages = deque[str]()
        self._woken, self._has_room = asyncio.Event(), asyncio.Event()
        self._is_gone = False
        self._last_message = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self.history, self.started = StreamHistory(), time.perf_counter()
        self.has_ended = False

    async def run(self) -> None:
        """Serves the connection until one of both sides closes it."""
        if not await self._accepted():
            return
        reader = asyncio.ensure_future(self._receive())
        self.service.sockets.add(self)
        try:
            await self._serve()
        except CloseError as close:
            await self._close(close)
        except WebSocketDisconnect:
            pass
        finally:
            reader.cancel()
            self.service.sockets.discard(self)
            self._leave()

    async def _accepted(self) -> bool:
        """Whether there is room for a stream; otherwise the client is told to come back later."""
        if self.service.stopping.is_set() or len(self.service.sockets) >= self.limits.streams:
            self.service.metrics.refused.labels("streams").inc()
            await self.socket.accept()
            await self._close(CloseError(1013, "too many streams are open, expected a connection later"))
            return False
        await self.socket.accept()
        return True

    async def _receive(self) -> None:
        """Puts messages where ``_serve`` finds them; a client that sends too many has to wait."""
        with suppress(WebSocketDisconnect, RuntimeError):
            while (message := await self.socket.receive())["type"] != "websocket.disconnect":
                self.messages.append(message.get("text") or "")
                self._last_message = time.monotonic()
                self._woken.set()
                while len(self.messages) >= _MAX_PENDING:
                    self._has_room.clear()
                    await self._has_room.wait()
        self._is_gone = True
        self._woken.set()

    async def _serve(self) -> None:
        while True:
            message = await self._next_message()
            if message is None:
                return
            try:
                await self._handle(message)
            except (AntiphonError, RefusedError) as error:
                await self._send({"event": "error", "error": str(error)})

    async def _next_message(self) -> str | None:
        """The next message, None after the last; a silent client is closed, and everyone when the service stops."""
        while not self.messages:
            if self._is_gone:
                return None
            if self.service.stopping.is_set():
                raise CloseError(1012, "the service stops")
            if self.is_idle():
                raise CloseError(4408, f"nothing was sent for {self.limits.idle_seconds:g} seconds")
            self._woken.clear()
            await self._woken.wait()
        self._has_room.set()
        return self.messages.popleft()

    def is_idle(self) -> bool:
        """Whether the client has been silent for too long."""
        return not self.messages and time.monotonic() - self._last_message > self.limits.idle_seconds

    def wake(self) -> None:
        """Makes the stream check whether it has to close."""
        self._woken.set()

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
        stream = self._stream_of(options)
        self._enter(StreamSearch(options.run, options.policy, options.beam, options.margin))
        self.options, self.stream = options, stream
        self._begin()
        await self._send({"event": "started", **options.model_dump(exclude={"beam"})})

    def _enter(self, search: StreamSearch) -> None:
        """Joins the streams that are searched in the same way; the stream so far is given up."""
        pool = self.service.pools.enter(search)
        self._leave()
        self.search, self.pool = search, pool

    def _stream_of(self, options: StreamStart) -> OpenStream:
        """A stream with checked options."""
        model = self.service.model(options.run, "stream")
        if options.policy not in self.service.runs[options.run]["policies"]:
            raise RefusedError(422, f"policy: {options.run} has no policy {options.policy}, expected beam")
        self.service.check_candidates(options.beam)
        for text in (options.features, "".join(options.prefix)):
            self.service.check_text("features or prefix", text)
        features = features_of(model, options.features, "features")
        return OpenStream(
            features, options.emit_bias, tuple(model.codec.target.known_ids(options.prefix, "prefix")), options.watch
        )

    async def _read(self, event: Event) -> None:
        """Reads a token, or a text piece by piece."""
        options = self._open_options()
        text = event.get("token", event.get("text"))
        if not isinstance(text, str) or set(event) not in ({"token"}, {"text"}):
            raise RefusedError(422, "read: expected either a token or a text")
        if len(text) > self.limits.characters:
            raise CloseError(4413, f"a text of more than {self.limits.characters:,} characters")
        source = self.service.models[options.run].codec.source
        pieces = [text] if "token" in event else split_pieces(text, by_character=isinstance(source.tokeniser, Chars))
        tokens = [source.tokens(piece) for piece in pieces]
        if len(self.history.source) + sum(max(1, len(each)) for each in tokens) > self.limits.stream_tokens:
            raise CloseError(4413, f"an input of more than {self.limits.stream_tokens:,} tokens")
        for parts in steps_of(pieces, tokens):
            await self._read_parts(parts)
        if options.watch and not self.messages and self.history.source:
            await self._send_lattice()

    async def _read_parts(self, parts: "list[Part]") -> None:
        """Reads what is read in one step; the event of a piece comes with its first part."""
        vocab = self.service.models[self._open_options().run].codec.source.vocab
        result = await self._step(StreamStep(self.stream, [part.tokens for part in parts]))
        events: list[Event] = []
        for index, (part, written) in enumerate(zip(parts, result.written, strict=True)):
            if part.piece is not None:
                unknown = [token for token in part.piece_tokens if token not in vocab]
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
        options = self._open_options()
        if event:
            raise RefusedError(422, "end: expected no other key")
        result = await self._step(StreamStep(self.stream, ends=True))
        events = self._write(result.rest)
        self.has_ended = True
        history, join = self.history, self.service.models[options.run].codec.target.tokeniser.join
        ended: Event = {
            "event": "end",
            "text": join(history.written),
            "tokens": history.written,
            "read": history.read_before,
            "AL": history.average_lagging,
            "time": self._seconds(),
        }
        await self._send(*events, ended)

    async def _send_lattice(self) -> None:
        options, history, stream = self._open_options(), self.history, self.stream
        lattices = self.service.lattices[options.run]
        shown = await self.service.batcher.submit_alone(lambda: lattices.of_stream(history, stream))
        await self._send({"event": "lattice", "run": options.run, **shown})

    def _open_options(self) -> StreamStart:
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
        if self.search is not None and self.pool is not None:
            self.pool.close(self.stream)
            self.service.pools.leave(self.search)
            self.pool = self.search = None


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
    step, size = list[Part](), 0
    for part in parts:
        if step and size + max(1, len(part.tokens)) > TOKENS_AT_ONCE:
            yield step
            step, size = [], 0
        step.append(part)
        size += max(1, len(part.tokens))
    if step:
        yield step


def split_pieces(text: str, *, by_character: bool) -> list[str]:
    """The pieces in which a text is read: its characters, or its words."""
    return list(text) if by_character else text.split()
